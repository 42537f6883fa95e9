"""What was measured: quantities, sites, readings, and the record that holds them."""

from leadline.record.finding import Finding
from leadline.record.growth import Growth, Jump, fit_growth
from leadline.record.profile import Profile
from leadline.record.quantity import Quantity
from leadline.record.reading import Reading
from leadline.record.record import Record, check_record
from leadline.record.site import Site

__all__ = [
    "Finding",
    "Growth",
    "Jump",
    "Profile",
    "Quantity",
    "Reading",
    "Record",
    "Site",
    "check_record",
    "fit_growth",
]
