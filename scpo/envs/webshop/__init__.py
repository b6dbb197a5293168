"""WebShop (arXiv 2207.01206) in process: the original's pages, actions and rewards.

No Java, browser or web server is needed.
"""

from scpo.envs.webshop.catalogue.catalogue import Catalogue, load_catalogue
from scpo.envs.webshop.shop.shop import WebShop

__all__ = ["Catalogue", "WebShop", "load_catalogue"]
