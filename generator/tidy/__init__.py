"""Tidies where fragments meet: what is two statements only because a point stood between them becomes one."""
