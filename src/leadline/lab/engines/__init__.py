"""What runs the cells of a sweep: processes of this machine, or a Ray cluster."""

from leadline.lab.engines.engine import ENGINES, Engine, Job, News, Orders, Work

__all__ = ["ENGINES", "Engine", "Job", "News", "Orders", "Work"]
