"""The firewall around an open network: what sandboxes do not reach there, nor is let in to them."""

from paddock.domain.egress.addresses import METADATA


def rules(table: str, bridge: str, subnet: str, gateway_uid: int) -> str:
    """For nft; replaces the whole table in one step.

    What is let through here may still be refused by the tables of others, an engine's among them.
    The address translation is an engine's own work for its networks, but one that was told to leave
    the firewall alone does not do it.
    """
    return f"""
table inet {table}
delete table inet {table}
table inet {table} {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{bridge}" ct state established,related accept
    iifname "{bridge}" icmp type echo-request accept
    iifname "{bridge}" reject
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{bridge}" ip daddr {{ {_metadata(4)} }} reject
    iifname "{bridge}" ip6 daddr {{ {_metadata(6)} }} reject
    iifname "{bridge}" ct status dnat reject
    iifname "{bridge}" oifname "{bridge}" reject
    iifname "{bridge}" accept
    oifname "{bridge}" ct state established,related accept
    oifname "{bridge}" reject
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    {f'oifname "{bridge}" meta skuid {gateway_uid} reject' if gateway_uid else ""}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {subnet} oifname != "{bridge}" masquerade
  }}
}}
"""


def _metadata(version: int) -> str:
    return ", ".join(str(network) for network in METADATA if network.version == version)
