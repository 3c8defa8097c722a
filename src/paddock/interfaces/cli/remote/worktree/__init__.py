"""`paddock worktree`: the directory says which sandbox is meant."""
