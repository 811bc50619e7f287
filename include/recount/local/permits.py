"""ACLs on the brokers of a home: those of the declared streams, and no others."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from recount.kafka.acls import Acl, Operation, Resource
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure

_RESOURCES: dict[Resource, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: dict[Operation, AclOperation] = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def permit(keeper: Connection, acls: Iterable[Acl]) -> None:
    """Let exactly ``acls`` be in force: those that are missing are made, all others removed."""
    wanted = {_binding(acl) for acl in acls}
    admin, doing = keeper.admin(), "changing the ACLs"
    try:
        there = set(admin.describe_acls(_EVERY, request_timeout=REQUEST_TIMEOUT_S).result())
        made = admin.create_acls(list(wanted - there), request_timeout=REQUEST_TIMEOUT_S) if wanted - there else {}
        gone = [_exactly(binding) for binding in there - wanted]
        removed = admin.delete_acls(gone, request_timeout=REQUEST_TIMEOUT_S) if gone else {}
        for answer in (*made.values(), *removed.values()):
            answer.result()
    except KafkaException as error:
        raise failure(doing, error) from error


# None stands for any, which the types of confluent-kafka do not know
_EVERY = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        _RESOURCES[acl.resource],
        acl.name,
        ResourcePatternType.LITERAL,
        f"User:{acl.role}",
        "*",
        _OPERATIONS[acl.operation],
        AclPermissionType.ALLOW,
    )


def _exactly(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
