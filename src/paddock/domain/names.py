"""Names for what nobody has named: easy to say, hard to mix up."""

import secrets

_HOW = (
    "agile amber ample azure bold brave brisk bright calm clear clever cosy crisp deep eager early "
    "fair fast fine firm fleet fond free fresh gentle glad golden grand green handy happy hardy "
    "keen kind large lively lucky mellow merry mild neat nimble noble patient plain proud quick "
    "quiet rapid ready rosy round sharp shiny silent silver smart smooth snug soft solid spare "
    "stable steady still sturdy sunny sure swift tidy trusty vivid warm wide wild wise young"
).split()
_WHO = (
    "alpaca badger beaver bison bobcat buffalo camel colt corgi cougar coyote crane deer dingo "
    "donkey eagle egret elk falcon ferret finch foal fox gazelle gecko goat goose grouse hare "
    "hawk hedgehog heron horse ibex jackal jay kestrel lamb lark linnet llama lynx magpie mare "
    "marten mole moose mule newt ocelot osprey otter owl ox panther pony puffin puma quail rabbit "
    "ram raven robin salmon seal sheep shrew sparrow stallion stoat stork swallow swan thrush "
    "toad trout vole walrus weasel wolf wombat wren yak zebra"
).split()


def invent() -> str:
    """Seven thousand pairs and a number: no two alike for long enough."""
    return f"{secrets.choice(_HOW)}-{secrets.choice(_WHO)}-{secrets.randbelow(10_000):04}"
