"""Where the gateway listens inside a fenced sandbox. Nobody's program is there."""

PROXY = 3128
TRANSPARENT = 3129
DNS = 3153
ALL = frozenset({PROXY, TRANSPARENT, DNS})
ADDRESS = "127.0.0.1"
