"""What was measured: quantities, sites, readings, and the record that holds them."""

from leadline.record.record import Record, check_record
from leadline.record.rows.finding import Finding
from leadline.record.rows.growth import Growth, Jump, fit_growth
from leadline.record.rows.profile import Profile
from leadline.record.rows.quantity import Quantity
from leadline.record.rows.reading import Reading
from leadline.record.rows.site import Site

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
