"""Callbacks for the trainers that people use."""

from leadline.lab.watch.callbacks.callback import LeadlineCallback

__all__ = ["LeadlineCallback"]
