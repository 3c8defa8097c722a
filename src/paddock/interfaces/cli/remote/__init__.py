"""Commands that talk to a server; `paddock sandbox …` is what works without one."""
