"""Sick models with known answers, and healthy ones, on which a diagnosis is tried.

A fault is put into a healthy model, the host; the answer says which causes a diagnosis may name
and where. Which of them rules may be tuned on stands in `leadline.testing.faults.split`.
"""
