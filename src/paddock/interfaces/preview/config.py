"""What an operator may set for the front listener."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FrontConfig:
    """Limits, deadlines and what is known about the way here. Sizes in bytes, times in seconds."""

    trusted_proxies: tuple[str, ...] = ()
    """Networks (CIDR) whose forwarding headers are believed; everyone else's are replaced."""
    public_url: str = ""
    """How the outside reaches this listener where scheme or port differ: `https://host:8443`."""

    max_head_bytes: int = 64 * 1024
    max_headers: int = 100
    max_request_line_bytes: int = 16 * 1024
    max_connections: int = 4096
    max_connections_per_address: int = 512
    """For one IPv4 address or one IPv6 /64; trusted proxies are exempt."""

    head_timeout_s: float = 15
    """From a request's first byte to the end of its head; what slow-loris clients run into."""
    idle_timeout_s: float = 75
    """Between two requests."""
    body_timeout_s: float = 60
    """Without a byte of a request's body that is still to come."""
    min_body_rate: float = 500
    """Bytes a second that a body comes with on average, over `body_timeout_s`. A client that sends
    a byte now and then runs into this."""
    send_timeout_s: float = 120
    """Without the client taking a byte of an answer that waits for it."""
    half_close_s: float = 10
    """For a client that has closed its side while the answer is silent: it is most likely gone. One
    that can be asked, by bytes that mean nothing, is found out at once."""
    connect_timeout_s: float = 5
    response_timeout_s: float = 300
    """From the end of a request to the head of its answer; dev servers compile first."""

    upstream_idle_s: float = 4
    """Below the five seconds of Node and uvicorn: whoever closes first must be this side."""
    max_idle_per_upstream: int = 32
    max_idle_upstreams: int = 512

    grace_s: float = 3
    """For what is under way when the listener closes."""
