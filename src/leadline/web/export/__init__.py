"""The lab as a static site: `leadline lab --export DIR`, and `export_site` from Python.

joining.py    ES modules as one classic script, which a page on disk may load
grid.py       which designs the site holds
encoding.py   their curves in few characters
computing.py  the curves of the grid, by two processes
page.py       the document, its style and its script, from the files that the server serves too
folder.py     a folder that is complete or untouched
site.py       all of it
pages/        modules that stand where those of the server would ask it: `api.js` and a few views
"""

from leadline.web.export.site import ExportedSite, export_site

__all__ = ["ExportedSite", "export_site"]
