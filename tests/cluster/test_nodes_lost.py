"""Nodes of a cluster die, stand still and come back under a fleet at work."""

import signal

import anyio
import pytest
from nodes import Cluster
from traffic import ROLES, STREAM, Traffic, running_traffic

pytestmark = [pytest.mark.faults, pytest.mark.cluster, pytest.mark.anyio]

KILLS = 2
LONGEST_GAP = 15.0
"""Seconds in which nothing may end: an election, and what it takes to notice that it is over."""

NO_QUORUM = 2.0
"""Seconds for which two of three nodes are watched to be missing."""


def one_address_each(cluster: Cluster) -> "dict[str, str]":
    """Each user's address of one node: of the others it hears from the cluster itself."""
    users = ("operator", "sender", *(agent for agents in ROLES.values() for agent in agents))
    return {it: cluster.nodes[n % 3].url(it) for n, it in enumerate(users)}


async def check_all(traffic: Traffic, cluster: Cluster) -> None:
    """All that was sent ended once, with a result."""
    await traffic.finish()
    await cluster.heal()
    assert set(traffic.ends) == set(traffic.planned)
    assert set(traffic.ends.values()) == {"PASS"}
    assert await traffic.complaints(cluster.nodes[0].url("operator")) == []


async def test_the_leader_is_killed_again_and_again(cluster: Cluster) -> None:
    async with running_traffic(one_address_each(cluster).__getitem__) as traffic:
        for _ in range(KILLS):
            leader = await cluster.leader(STREAM)
            await cluster.kill(leader)
            await traffic.more_ended(10, limit=2 * LONGEST_GAP)
            await cluster.start(leader)
            await cluster.heal()
        await check_all(traffic, cluster)
        assert traffic.longest_gap() < LONGEST_GAP


async def test_a_leader_that_stands_still_and_goes_on_changes_nothing(cluster: Cluster) -> None:
    """Those who were connected to it would notice after three pings; here the others go on."""
    *others, still = cluster.nodes
    async with running_traffic(lambda user: ",".join(it.url(user) for it in others)) as traffic:
        await cluster.make_leader(still, STREAM)
        still.send_signal(signal.SIGSTOP)
        try:
            await traffic.more_ended(30, limit=2 * LONGEST_GAP)
        finally:
            still.send_signal(signal.SIGCONT)
        await traffic.more_ended(10, limit=LONGEST_GAP)
        await check_all(traffic, cluster)


async def test_without_a_majority_nothing_is_acknowledged_and_then_all_of_it_goes_on(
    cluster: Cluster,
) -> None:
    async with running_traffic(cluster.url) as traffic:
        lost = [await cluster.leader(STREAM)]
        lost.append(next(it for it in cluster.nodes if it not in lost))
        for node in lost:
            await cluster.kill(node)
        await traffic.stalled(limit=10)
        acknowledged, ended = len(traffic.acknowledged), len(traffic.ends)
        await anyio.sleep(NO_QUORUM)
        assert (len(traffic.acknowledged), len(traffic.ends)) == (acknowledged, ended)
        await cluster.start(lost[0])
        await traffic.more_ended(10, limit=40)
        await cluster.start(lost[1])
        await check_all(traffic, cluster)
