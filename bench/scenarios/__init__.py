"""One file a scenario, one function a side, all sides of one signature."""
