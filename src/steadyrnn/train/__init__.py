"""One trainer for any module on any task."""
