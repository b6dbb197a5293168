"""``python -m scpo.envs.webshop``: list the official files and check a folder of them."""

import sys

from scpo.envs.webshop.catalogue.official_files import main

sys.exit(main())
