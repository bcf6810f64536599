"""Makes calls fail on purpose: one vocabulary for unit tests, the simulation, the crash loop and the soak.

A **fault** says what happens to a call, in one word:

    LoseAnswer         the call takes effect or not, and its caller gets no answer
    DeliverTwice       the network sends the call twice and passes on the second answer
    Drop               the connection breaks before the call arrives, or within the answer
    Refuse             the answer is an error
    Damage             the answer is changed; `flipped` and `worse` change stored bytes
    Stall              the call waits, and others act meanwhile
    Kill               the process dies before the call or after it
    IgnoreConditions   the store does not know conditional requests

**Calls** say where and when: by operation, key and condition, and then by number (`nth`, `first`, `from_nth`)
or by chance (`by_chance`, from a seeded generator). A call that several faults hit meets the first outermost.

**Hosts** carry faults out. Each has `faults`, to which a test adds them, and answers as a real one would:

    FaultyStore        wraps any store; `MemoryStore` of tests/support is one. Operations are the methods of
                       `Store`, and `write`, `complete` and `read_stream` of what they open
    S3Server           of tests/support, over HTTP. Operations are methods such as "GET"
    SimulatedStore     of tests/simulation, by `Chances`, which draw faults from the run's seed

A commit whose answer is lost, although it landed:

    store = MemoryStore()
    lost = store.faults.add(LoseAnswer(), at=calls("create", prefix="_log/").first())
    CommitLog(store).commit(...)
    assert lost.hits == [("create", "_log/00000000000000000001.json")]
    store.faults.clear()  # the store answers again
"""

from __future__ import annotations

from tests.faults.calls import Call, Calls, Effect, Fault, calls
from tests.faults.damage import Damage, flipped, worse
from tests.faults.deliver_twice import DeliverTwice
from tests.faults.drop import Drop
from tests.faults.ignore_conditions import IgnoreConditions
from tests.faults.kill import Crash, Kill
from tests.faults.lose_answer import LoseAnswer
from tests.faults.plan import Faults
from tests.faults.refuse import Refuse
from tests.faults.stall import Stall

__all__ = [
    "Call",
    "Calls",
    "Crash",
    "Damage",
    "DeliverTwice",
    "Drop",
    "Effect",
    "Fault",
    "Faults",
    "IgnoreConditions",
    "Kill",
    "LoseAnswer",
    "Refuse",
    "Stall",
    "calls",
    "flipped",
    "worse",
]
