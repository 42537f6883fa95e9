"""Files of others that come with the package, unchanged: uPlot 1.6.32, MIT licence.

https://github.com/leeoniya/uPlot, `dist/uPlot.iife.min.js` and `dist/uPlot.min.css` of the npm
package `uplot`. To bring another version, replace the files and the digests, which a test compares.
"""

from __future__ import annotations

__all__ = ["DIGESTS", "VERSION"]

VERSION = "1.6.32"
DIGESTS = {
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""The SHA-256 of every file."""
