"""``python -m scpo.envs.webshop``: which official files there are, and whether a folder holds them."""

import sys

from scpo.envs.webshop.catalogue.official_files import main

sys.exit(main())
