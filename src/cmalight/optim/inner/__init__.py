"""The inner cycle: what a step is, what it leaves behind, and what ranks have to settle about it."""
