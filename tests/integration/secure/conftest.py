"""One secured broker for these tests, with the ACLs of the declared stream, and nothing else allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.secure.chain import Chain

from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(home=Home(path=tmp_path_factory.mktemp("secured")), project=project, secure=True) as broker:
        yield broker


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory, secured: EmbeddedKafka, project: Project) -> Chain:
    """Its topics are there, made by the admin."""
    made = Chain.below(tmp_path_factory.mktemp("chain"), secured, project)
    made.permit(made.acls)
    made.create_topics()
    return made
