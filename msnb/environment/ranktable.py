"""Rank tables: the JSON file that tells HCCL which rank is which device of which server.

Forms and required fields are those of the pages "Rank Table Configuration" in the HCCL user guide
(hiascend.com, CANN 9.0, hcclug_000066 for Atlas A3, hcclug_000067 for Atlas A2, hcclug_000068 for
Atlas training products, with the older form ``group_list``) and of MindSpore's tutorial "rank table
startup". HCCL reads text and refuses numbers: ``TopoInfoRanktableParser::GetJsonProperty``, "is not
string!".
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msnb.environment.ascend import Facts, hccn
from msnb.report import Check

LARGEST = 8 << 20  # bytes; a table of 10,000 devices takes about one million
VARIABLES = ("RANK_TABLE_FILE", "RANK_SIZE", "RANK_ID", "DEVICE_ID", "ASCEND_RT_VISIBLE_DEVICES")
VERSIONS = {"1.0": "Atlas training products and A2", "1.2": "Atlas A3 SuperPoDs"}

# What HCCL reads; other keys, which other programs write, are no business of these rules.
_READ = {
    *("status", "version", "server_count", "server_id", "device_id", "device_ip", "rank_id"),
    *("super_device_id", "super_pod_id", "host_ip", "device_port", "host_port"),
    *("backup_device_ip", "backup_device_port"),
    *("group_count", "instance_count", "device_count", "device_num", "server_num", "group_name"),
}

Rule = Callable[[Facts], Check]


def gather(
    file: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] = "/",
    environment: Mapping[str, str] | None = None,
) -> Facts:
    """What ``file``, this process and ``/etc/hccn.conf`` below ``root`` say, as JSON values.

    ``environment`` stands in for this process's variables. What cannot be read is a fact too, as a
    sentence under ``error``.
    """
    variables = os.environ if environment is None else environment
    path = os.path.abspath(file)
    return {
        "file": path,
        **_read(Path(path)),
        "environment": {name: variables[name] for name in VARIABLES if name in variables},
        "hccn": hccn(Path(root)),
    }


def judge(facts: Facts) -> list[Check]:
    """One Check a rule; only the first, ``file``, where there is no table to judge."""
    first = _file(facts)
    if not first:
        return [first]
    form = _form(facts)
    if not form:
        return [first, form]
    rows = [first, form]
    for name, rule in RULES.items():
        try:
            rows.append(rule(facts))
        except Exception as error:
            reason = f"could not be judged: {type(error).__name__}: {error}"
            rows.append(Check(name, "error", reason, remedy=f"cat {shlex.quote(facts['file'])}"))
    return rows


# --- reading -------------------------------------------------------------------------------------


class _Refused(ValueError):
    pass


def _read(path: Path) -> Facts:
    facts: Facts = {"table": None, "repeated": []}
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _Refused("is a directory, not a rank table")
        if not stat.S_ISREG(status.st_mode):
            raise _Refused("is not a regular file")
        if status.st_size > LARGEST:
            size, most = status.st_size / (1 << 20), LARGEST >> 20
            raise _Refused(f"is {size:.0f} MiB, and no rank table is larger than {most} MiB")
        text = path.read_bytes().decode("utf-8-sig")
        if not text.strip():
            raise _Refused("is empty")
        table = json.loads(
            text,
            object_pairs_hook=lambda pairs: _object(pairs, facts["repeated"]),
            parse_constant=_no_constant,
        )
        if not isinstance(table, dict):
            raise _Refused(f"holds {_kind(table)}, and a rank table is an object: {{...}}")
        facts["table"] = table
    except FileNotFoundError:
        facts["error"] = "is not there"
    except _Refused as refusal:
        facts["error"] = str(refusal)
    except UnicodeDecodeError as error:
        facts["error"] = (
            f"is no text in UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
        )
    except json.JSONDecodeError as error:
        facts["error"] = f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        facts["line"] = error.doc.splitlines()[error.lineno - 1].strip()[:120] if error.doc else ""
    except RecursionError:
        facts["error"] = "is nested too deeply to be a rank table"
    except OSError as error:
        facts["error"] = f"cannot be read: {error.strerror}"
    return facts


def _object(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    counts = Counter(key for key, _ in pairs)
    repeated += [key for key, count in counts.items() if count > 1]
    return dict(pairs)


def _no_constant(word: str) -> Any:
    raise _Refused(f"holds {word}, which JSON does not have")


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a truth value"}
    number = "a number" if isinstance(value, (int, float)) else "nothing"
    return kinds.get(type(value), number)


# --- the file and its form -----------------------------------------------------------------------


def _file(facts: Facts) -> Check:
    path, expected = facts["file"], "a rank table: one JSON object in a file"
    quoted = shlex.quote(path)
    error = facts.get("error")
    if not error:
        if facts["repeated"]:
            keys = ", ".join(map(repr, dict.fromkeys(facts["repeated"])))
            summary = f"has the same key twice in one object: {keys}; only the last one counts"
            return Check("file", "failed", summary, path, expected, f"vi {quoted}  # keep one")
        return Check("file", "ok", "is JSON", path, expected)
    remedy = f"ls -l {quoted}"
    line = facts.get("line", "")
    if "JSON" in error:
        remedy = f"python3 -m json.tool {quoted}"
        if re.search(r"//|^#|/\*", line):
            remedy = f"sed -i 's,//.*$,,' {quoted}  # JSON has no comments, published examples do"
        elif "'" in line:
            remedy = f"""sed -i "s/'/\\"/g" {quoted}  # JSON has double quotes only"""
    if error == "is not there":
        remedy = f"ls {shlex.quote(os.path.dirname(path))}"
    found = f"{path}: {line}" if line else path
    return Check("file", "failed", f"{os.path.basename(path)} {error}", found, expected, remedy)


def _form(facts: Facts) -> Check:
    table, edit = facts["table"], _edit(facts)
    expected = f"version {' or '.join(VERSIONS)} with server_list, or the older form, group_list"
    if "group_list" in table and "server_list" not in table:
        problem = _shape(table, "group_list", "instance_list", "devices")
        if problem:
            return Check("form", "failed", problem, "", expected, edit)
        return Check("form", "ok", "the older form, group_list", "", expected)
    version = table.get("version")
    if "rank_list" in table or version == "2.0":
        summary = "version 2.0, rank_list, of Ascend 950: these rules know 1.0, 1.2 and group_list"
        return Check("form", "error", summary, "", expected, edit)
    if "server_group_list" in table:
        summary = "is a global-ranktable, server_group_list: HCCL takes the table of one group"
        return Check("form", "failed", summary, "", expected, edit)
    if "server_list" not in table:
        keys = ", ".join(map(repr, table)) or "nothing"
        summary = f"has neither server_list nor group_list, but {keys}"
        return Check("form", "failed", summary, "", expected, edit)
    problem = _shape(table, "server_list", "device")
    if problem:
        return Check("form", "failed", problem, "", expected, edit)
    if version not in VERSIONS:
        summary = f"version is {_shown(version)}" if "version" in table else "has no version"
        wish = "1.2" if "super_pod_list" in table else "1.0"
        return Check("form", "failed", summary, "", expected, _edit(facts, f'"version": "{wish}",'))
    return Check("form", "ok", f"version {version}, for {VERSIONS[version]}", "", expected)


def _shape(table: dict[str, Any], *way: str) -> str:
    """What is wrong on the way down to the devices, or nothing."""
    level: list[tuple[str, Any]] = [("", table)]
    for key in way:
        below_it = []
        for where, item in level:
            value = item.get(key)
            place = f"{key} of {where}" if where else key
            if not isinstance(value, list):
                got = f"is {_kind(value)}, not a list" if key in item else "is missing"
                return f"{place} {got}"
            if not value:
                return f"{place} is empty"
            for index, entry in enumerate(value):
                if not isinstance(entry, dict):
                    return f"{place}: entry {index} is {_kind(entry)}, not an object"
                below_it.append((f"{key}[{index}]" + (f" of {where}" if where else ""), entry))
        level = below_it
    return ""


# --- rules ---------------------------------------------------------------------------------------


def _status(facts: Facts) -> Check:
    status = facts["table"].get("status")
    expected = 'status is "completed": any other means that HCCL waits for the table'
    if status == "completed":
        return Check("status", "ok", "completed", "", expected)
    summary = f"status is {_shown(status)}" if "status" in facts["table"] else "has no status"
    return Check("status", "failed", summary, "", expected, _edit(facts, '"status": "completed"'))


def _counts(facts: Facts) -> Check:
    table = facts["table"]
    expected = "the counts written in the table are those of its lists"
    wrong, written = [], 0
    for name, said, real in _counted(table):
        if said is None:
            continue
        written += 1
        if str(said) != str(real):
            wrong.append(f"{name} is {_shown(said)}, there are {real}")
    needed = table.get("version") == "1.0" and "server_count" not in table
    if needed:
        wrong.append(f"server_count is missing, there are {len(_servers(table))}")
    if wrong:
        remedy = _edit(facts, ", ".join(_corrected(table)))
        return Check("counts", "failed", "; ".join(wrong), "", expected, remedy)
    if not written:
        return Check("counts", "skipped", "no counts are written in this table", "", expected)
    summary = ", ".join(
        f"{name} {real}" for name, said, real in _counted(table) if said is not None
    )
    return Check("counts", "ok", summary, "", expected)


def _counted(table: dict[str, Any]) -> list[tuple[str, Any, int]]:
    if "server_list" in table:
        return [("server_count", table.get("server_count"), len(_servers(table)))]
    rows: list[tuple[str, Any, int]] = [
        ("group_count", table.get("group_count"), len(table["group_list"]))
    ]
    for group in table["group_list"]:
        instances = group["instance_list"]
        devices = sum(len(instance["devices"]) for instance in instances)
        servers = len({str(instance.get("server_id")) for instance in instances})
        rows.append(("instance_count", group.get("instance_count"), len(instances)))
        rows.append(("device_count", group.get("device_count"), devices))
        rows.append(("device_num", group.get("device_num"), devices))
        rows.append(("server_num", group.get("server_num"), servers))
    return rows


def _corrected(table: dict[str, Any]) -> list[str]:
    wrong = [(n, r) for n, said, r in _counted(table) if said is not None and str(said) != str(r)]
    if "server_list" in table and "server_count" not in table:
        wrong.append(("server_count", len(_servers(table))))
    return [f'"{name}": "{real}"' for name, real in wrong]


def _text(facts: Facts) -> Check:
    """HCCL refuses a number where the table has to hold text."""
    expected = 'every value is text, "0" and not 0: HCCL says "is not string!" to a number'
    wrong = []
    for where, item in _items(facts["table"]):
        for key, value in item.items():
            if key in _READ and (value is None or isinstance(value, (bool, int, float))):
                wrong.append(f"{key} is {json.dumps(value)} in {where}")
    if not wrong:
        return Check("text", "ok", "every value is text", "", expected)
    summary = f"{len(wrong)} values are not text, first: {wrong[0]}"
    numbers = r"""sed -Ei 's/("[a-z_]+"\s*:\s*)([0-9.]+)/\1"\2"/g'"""
    remedy = f"{numbers} {shlex.quote(facts['file'])}"
    return Check("text", "failed", summary, "; ".join(wrong[:8]), expected, remedy)


def _items(table: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    yield "the table", {k: v for k, v in table.items() if not isinstance(v, (list, dict))}
    for key in ("server_list", "group_list", "super_pod_list"):
        entries = table.get(key)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            yield from _inside(f"{key}[{index}]", entry)


def _inside(where: str, item: object) -> Iterable[tuple[str, dict[str, Any]]]:
    if not isinstance(item, dict):
        return
    yield where, {k: v for k, v in item.items() if not isinstance(v, (list, dict))}
    for key, value in item.items():
        if isinstance(value, list):
            for index, entry in enumerate(value):
                yield from _inside(f"{where}.{key}[{index}]", entry)


def _server_ids(facts: Facts) -> Check:
    servers = _servers(facts["table"])
    expected = "every server has a server_id of its own, text of 1 to 64 characters"
    wrong = []
    for index, server in enumerate(servers):
        id = server["id"]
        if not isinstance(id, str) or not id.strip():
            said = _shown(id) if server["named"] else "missing"
            wrong.append(f"server {index} (from 0): server_id is {said}")
        elif len(id) > 64:
            wrong.append(f"server_id {id[:20]!r}... has {len(id)} characters")
    ids = [server["id"] for server in servers if isinstance(server["id"], str)]
    if "server_list" in facts["table"]:  # in group_list instances share a server
        for id, count in Counter(ids).items():
            if count > 1 and id.strip():
                wrong.append(f"server_id {id!r} is written for {count} servers")
    if wrong:
        remedy = _edit(facts, "server_id: an address or a name that no other server has")
        return Check("servers", "failed", "; ".join(wrong), "", expected, remedy)
    servers = _merged(facts["table"])
    summary = ", ".join(f"{s['id']}: {_many(len(s['devices']), 'device')}" for s in servers[:8])
    if len(servers) > 8:
        summary += f" and {_many(len(servers) - 8, 'server')} more"
    return Check("servers", "ok", summary, "", expected, metrics={"servers": len(servers)})


def _ranks(facts: Facts) -> Check:
    servers = _servers(facts["table"])
    devices = [device for server in servers for device in server["devices"]]
    size = len(devices)
    expected = f"the ranks are {_numbers(range(size))}, each once, together on each server"
    metrics = {"ranks": size}
    wrong = []
    for device in devices:
        if _natural(device["rank"]) is None:
            said = _shown(device["rank"]) if device["rank"] is not None else "missing"
            wrong.append(f"rank_id of {device['where']} is {said}")
    ranks = [n for device in devices if (n := _natural(device["rank"])) is not None]
    for rank, count in sorted(Counter(ranks).items()):
        if count > 1:
            where = " and ".join(d["where"] for d in devices if _natural(d["rank"]) == rank)
            wrong.append(f"rank {rank} is written for {where}")
    missing = sorted(set(range(size)) - set(ranks))
    beyond = sorted({rank for rank in ranks if rank >= size})
    if missing and len(wrong) < size:
        wrong.append(f"{_listed('rank', missing)} missing")
    if beyond:
        wrong.append(f"{_listed('rank', beyond)} beyond {size - 1}, the last of {size} devices")
    if wrong:
        remedy = _edit(facts, f"rank_id {_numbers(range(size))}, in the order of the servers")
        return Check("ranks", "failed", "; ".join(wrong), "", expected, remedy, metrics)
    if "server_list" in facts["table"]:
        for server in servers:
            span = sorted(int(device["rank"]) for device in server["devices"])
            if span[-1] - span[0] != len(span) - 1:
                summary = (
                    f"server {server['id']!r} has ranks {_numbers(span)}: between them lie ranks "
                    "of another server, which HCCL does not support"
                )
                remedy = _edit(facts, "rank_id so that the ranks of each server follow each other")
                return Check("ranks", "failed", summary, "", expected, remedy, metrics)
    summary = f"{_numbers(range(size))}, each once" if size > 1 else "0, the only one"
    ids = [str(server["id"]) for server in sorted(servers, key=lambda s: _first_rank(s))]
    if len(servers) > 1 and ids != sorted(ids):
        summary += "; MindSpore's tutorial asks for ranks in the alphabetical order of server_id"
    return Check("ranks", "ok", summary, "", expected, metrics=metrics)


def _first_rank(server: Facts) -> int:
    return min((_natural(device["rank"]) or 0 for device in server["devices"]), default=0)


def _devices(facts: Facts) -> Check:
    expected = "every device_id is a number from 0, once on its server"
    wrong = []
    for server in _merged(facts["table"]):
        seen: dict[int, str] = {}
        for device in server["devices"]:
            number = _natural(device["id"])
            if number is None:
                said = _shown(device["id"]) if device["id"] is not None else "missing"
                wrong.append(f"device_id of {device['where']} is {said}")
            elif number in seen:
                wrong.append(f"device {number} is written twice for server {server['id']!r}")
            seen[-1 if number is None else number] = device["where"]
    if wrong:
        remedy = _edit(facts, "device_id as `ls /dev/davinci*` shows on that server: davinci0 is 0")
        return Check("devices", "failed", "; ".join(wrong), "", expected, remedy)
    summary = "; ".join(
        f"{server['id']}: {_numbers(int(d['id']) for d in server['devices'])}"
        for server in _merged(facts["table"])[:8]
    )
    return Check("devices", "ok", summary, "", expected)


def _addresses(facts: Facts) -> Check:
    table = facts["table"]
    servers = _merged(table)
    pods = table.get("super_pod_list")
    several = len(pods) > 1 if isinstance(pods, list) and pods else len(servers) > 1
    needed = several or "group_list" in table
    expected = "every device_ip is an IP address, no two alike" + (
        "" if needed else "; one server or SuperPoD alone need not have them"
    )
    wrong, without = [], []
    owners: dict[str, str] = {}
    for server in servers:
        for device in server["devices"]:
            address, where = device["ip"], device["where"]
            if address is None:
                without.append(where)
            elif not _is_address(address):
                word = "a placeholder" if re.search(r"[*xX]", str(address)) else "no IP address"
                wrong.append(f"device_ip of {where} is {_shown(address)}, {word}")
            elif address in owners:
                wrong.append(f"device_ip {address} is written for {owners[address]} and {where}")
            else:
                owners[address] = where
    if without and needed:
        wrong.append(f"device_ip of {without[0]} is missing" + _others(len(without) - 1))
    remedy = _edit(facts, "device_ip from /etc/hccn.conf of that server: address_0 is device 0's")
    if wrong:
        summary = "; ".join(wrong[:4]) + _others(len(wrong) - 4)
        return Check("device_ip", "failed", summary, "; ".join(wrong[:16]), expected, remedy)
    if without:
        return Check("device_ip", "ok", f"{len(without)} left out, not needed here", "", expected)
    return Check("device_ip", "ok", f"{_many(len(owners), 'address')}, no two alike", "", expected)


def _pods(facts: Facts) -> Check:
    table = facts["table"]
    pods, expected = table.get("super_pod_list"), "every server is in one SuperPoD of the list"
    if "super_pod_list" not in table:
        reason = "no super_pod_list in this table"
        if table.get("version") == "1.2":
            reason += ": HCCL treats its servers as single ones"
        return Check("SuperPoDs", "skipped", reason, "", expected)
    edit = _edit(facts, "super_pod_list")
    problem = _shape(table, "super_pod_list", "server_list")
    if problem:
        return Check("SuperPoDs", "failed", problem, "", expected, edit)
    if table.get("version") != "1.2":
        summary = f"super_pod_list needs version 1.2, and this is {_shown(table.get('version'))}"
        return Check("SuperPoDs", "failed", summary, "", expected, _edit(facts, '"version": "1.2"'))
    named = [
        (pod.get("super_pod_id"), s.get("server_id")) for pod in pods for s in pod["server_list"]
    ]
    counts = Counter(server for _, server in named)
    known = [server["id"] for server in _servers(table)]
    wrong = [f"server {id!r} is in no SuperPoD" for id in known if id not in counts]
    wrong += [f"server {id!r} is not in server_list" for id in counts if id not in known]
    wrong += [f"server {id!r} is listed {n} times" for id, n in counts.items() if n > 1]
    ids = Counter(pod.get("super_pod_id") for pod in pods)
    wrong += [f"super_pod_id {id!r} is written for {n} SuperPoDs" for id, n in ids.items() if n > 1]
    if not wrong:
        pod_of = {server: pod for pod, server in named}
        wrong = _super_devices(table, pod_of)
        order = [pod_of[id] for id in known]
        blocks = [pod for index, pod in enumerate(order) if index == 0 or order[index - 1] != pod]
        if len(blocks) != len(set(blocks)):
            wrong.append("servers of one SuperPoD do not follow each other in server_list")
    if wrong:
        return Check("SuperPoDs", "failed", "; ".join(wrong), "", expected, edit)
    summary = f"{_many(len(pods), 'SuperPoD')} of {_many(len(known), 'server')}"
    return Check("SuperPoDs", "ok", summary, "", expected)


def _super_devices(table: dict[str, Any], pod_of: dict[Any, Any]) -> list[str]:
    seen: dict[tuple[Any, Any], str] = {}
    wrong = []
    for server in _servers(table):
        for device in server["devices"]:
            key = (pod_of[server["id"]], device["super"])
            if device["super"] is not None and key in seen:
                wrong.append(
                    f"super_device_id {device['super']} is written for {seen[key]} and "
                    f"{device['where']} of one SuperPoD"
                )
            seen[key] = device["where"]
    return wrong


def _this_machine(facts: Facts) -> Check:
    hccn = facts["hccn"]
    expected = f"the device_ip of one server are those in {hccn['path']}"
    if hccn["devices"] is None:
        reason = (
            f"{hccn['path']}: {hccn['error']}; this is no server with Ascend devices, or a "
            f"container without -v {hccn['path']}:{hccn['path']}"
        )
        return Check("this machine", "skipped", reason, "", expected)
    if not hccn["devices"]:
        summary = f"{hccn['path']} has no line address_0=...: the devices have no addresses yet"
        remedy = "hccn_tool -i 0 -ip -s address ADDRESS netmask NETMASK  # each device, as root"
        return Check("this machine", "failed", summary, "", expected, remedy)
    server = _own_server(facts)
    here = {address: int(device) for device, all in hccn["devices"].items() for address in all}
    written = "; ".join(f"device {d}: {a}" for a, d in sorted(here.items(), key=lambda i: i[1]))
    remedy = _edit(facts, f"device_ip from {hccn['path']}: address_0 is device 0's")
    if server is None:
        every = [d["ip"] for s in _merged(facts["table"]) for d in s["devices"]]
        if not any(every):
            reason = "the table has no device_ip to compare"
            return Check("this machine", "skipped", reason, "", expected)
        summary = "no device_ip of the table belongs to this machine"
        found = f"{hccn['path']}: {written}"
        return Check("this machine", "failed", summary, found, expected, remedy)
    wrong = []
    for device in server["devices"]:
        number, address = _natural(device["id"]), device["ip"]
        if address is None or here.get(address) == number:
            continue
        own = hccn["devices"].get(str(number))
        said = f"{hccn['path']} says {' and '.join(own)}" if own else f"{hccn['path']} has no such"
        if address in here:
            said += f"; {address} is device {here[address]}"
        wrong.append(f"device {number}: the table says {address}, {said}")
    if wrong:
        return Check("this machine", "failed", "; ".join(wrong), written, expected, remedy)
    summary = f"is server {server['id']}, {_many(len(server['devices']), 'address')} as here"
    return Check("this machine", "ok", summary, "", expected)


def _own_server(facts: Facts) -> Facts | None:
    """The server of the table with the most addresses of this machine, if any has one."""
    here = {address for all in (facts["hccn"]["devices"] or {}).values() for address in all}
    shared = [
        (sum(device["ip"] in here for device in server["devices"]), -index, server)
        for index, server in enumerate(_merged(facts["table"]))
    ]
    count, _, server = max(shared, key=lambda entry: entry[:2], default=(0, 0, {}))
    return server if count else None


# --- variables of this process against the table -------------------------------------------------


def _rank_table_file(facts: Facts) -> Check:
    name, value = "RANK_TABLE_FILE", facts["environment"].get("RANK_TABLE_FILE")
    expected = f"{name}={facts['file']}"
    if value is None:
        return Check(name, "skipped", "not set in this process", "", expected)
    if os.path.realpath(value) == os.path.realpath(facts["file"]):
        return Check(name, "ok", "is this file", value, expected)
    remedy = f"export {name}={shlex.quote(facts['file'])}"
    if not value:
        summary = "is set and empty"
        return Check(name, "failed", summary, "", expected, remedy)
    return Check(name, "failed", f"names another file, {value}", value, expected, remedy)


def _rank_size(facts: Facts) -> Check:
    size = len(_all(facts["table"]))
    return _number(facts, "RANK_SIZE", size, f"the table has {_many(size, 'rank')}")


def _number(facts: Facts, name: str, right: int, because: str) -> Check:
    value = facts["environment"].get(name)
    expected, remedy = f"{name}={right}: {because}", f"export {name}={right}"
    if value is None:
        return Check(name, "skipped", "not set in this process", "", expected)
    if _natural(value) == right:
        return Check(name, "ok", f"{right}: {because}", "", expected)
    return Check(name, "failed", f"is {_shown(value)}, and {because}", "", expected, remedy)


def _rank_id(facts: Facts) -> Check:
    name, value = "RANK_ID", facts["environment"].get("RANK_ID")
    own = _own_server(facts)
    server = f" of server {own['id']}, this machine" if own else " of the table"
    devices = own["devices"] if own else _all(facts["table"])
    ranks = sorted(n for d in devices if (n := _natural(d["rank"])) is not None)
    expected = f"{name} is a rank{server}: {_numbers(ranks)}"
    if value is None:
        return Check(name, "skipped", "not set in this process", "", expected)
    if _natural(value) in ranks:
        return Check(name, "ok", f"{value}, a rank{server}", "", expected)
    remedy = f"export {name}={ranks[0]}  # the next process the next rank" if ranks else ""
    return Check(name, "failed", f"is {_shown(value)}, no rank{server}", "", expected, remedy)


def _visible(facts: Facts) -> Check:
    name = "ASCEND_RT_VISIBLE_DEVICES"
    value = facts["environment"].get(name)
    own = _own_server(facts) or _only(facts["table"])
    expected = f"{name} holds every device that the table gives to this machine"
    if value is None:
        reason = "not set in this process: all devices are visible"
        return Check(name, "skipped", reason, "", expected)
    visible = visible_devices(value)
    if visible is None or len(set(visible)) != len(visible):
        summary = f"is {_shown(value)}: device numbers with commas between them, each once"
        return Check(name, "failed", summary, "", expected, f"unset {name}")
    if own is None:
        return Check(name, "skipped", "which server this machine is, is not known", "", expected)
    wanted = sorted(n for d in own["devices"] if (n := _natural(d["id"])) is not None)
    missing = [number for number in wanted if number not in visible]
    if missing:
        summary = f"{value} hides {_listed('device', missing, verb=False)} of the table"
        remedy = f"export {name}={','.join(map(str, wanted))}"
        return Check(name, "failed", summary, "", expected, remedy)
    return Check(name, "ok", f"{value}: every device of the table is visible", "", expected)


def visible_devices(value: str) -> list[int] | None:
    """The numbers in a list such as ``0,1,3``; None where it is no such list."""
    words = [word.strip() for word in value.split(",")]
    return (
        [int(word) for word in words] if all(re.fullmatch("[0-9]{1,6}", w) for w in words) else None
    )


def _device_id(facts: Facts) -> Check:
    name, value = "DEVICE_ID", facts["environment"].get("DEVICE_ID")
    rank = _natural(facts["environment"].get("RANK_ID"))
    mine = [d for d in _all(facts["table"]) if rank is not None and _natural(d["rank"]) == rank]
    expected = f"{name} is the device of this process's rank"
    if value is None:
        return Check(name, "skipped", "not set in this process", "", expected)
    if len(mine) != 1:
        reason = "RANK_ID is not set in this process" if rank is None else "RANK_ID is no rank"
        return Check(name, "skipped", reason, "", expected)
    physical, because = _natural(mine[0]["id"]), f"rank {rank} is device {mine[0]['id']}"
    visible = visible_devices(facts["environment"].get("ASCEND_RT_VISIBLE_DEVICES", ""))
    if physical is None or (visible is not None and physical not in visible):
        return Check(name, "skipped", "see devices and visible devices", "", expected)
    if visible is not None:  # a process counts the devices that it sees
        because += f", number {visible.index(physical)} of those visible"
        return _number(facts, name, visible.index(physical), because)
    return _number(facts, name, physical, because)


# --- both forms alike ----------------------------------------------------------------------------


def _servers(table: dict[str, Any]) -> list[Facts]:
    """The servers, or the instances of the older form, with their devices in one shape."""
    if "server_list" in table:
        return [
            _server(entry, entry["device"], f"server {entry.get('server_id')!r}")
            for entry in table["server_list"]
        ]
    instances = [entry for group in table["group_list"] for entry in group["instance_list"]]
    servers = []
    counted = 0
    for index, entry in enumerate(instances):
        server = _server(entry, entry["devices"], f"instance {index} (from 0)")
        for device in server["devices"]:
            # In the oldest tables an instance is one device and has the rank; in later ones the
            # devices are ranked in the order in which they are written.
            device["rank"] = entry["rank_id"] if "rank_id" in entry else str(counted)
            counted += 1
        servers.append(server)
    return servers


def _server(entry: dict[str, Any], devices: list[dict[str, Any]], where: str) -> Facts:
    return {
        "id": entry.get("server_id"),
        "named": "server_id" in entry,
        "devices": [
            {
                "id": device.get("device_id"),
                "ip": device.get("device_ip"),
                "rank": device.get("rank_id"),
                "super": device.get("super_device_id"),
                "where": f"device {device.get('device_id', index)} of {where}",
            }
            for index, device in enumerate(devices)
        ],
    }


def _merged(table: dict[str, Any]) -> list[Facts]:
    """The servers; instances of one server as one."""
    if "server_list" in table:
        return _servers(table)
    merged: dict[str, Facts] = {}
    for instance in _servers(table):
        entry = merged.setdefault(repr(instance["id"]), {**instance, "devices": []})
        entry["devices"] += instance["devices"]
    return list(merged.values())


def _all(table: dict[str, Any]) -> list[Facts]:
    return [device for server in _servers(table) for device in server["devices"]]


def _only(table: dict[str, Any]) -> Facts | None:
    servers = _merged(table)
    return servers[0] if len(servers) == 1 else None


def _natural(value: object) -> int | None:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None


def _is_address(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(ipaddress.ip_address(value))
    except ValueError:
        return False


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if value is not None else "null"
    return text if len(text) <= 60 else text[:57] + "..."


def _edit(facts: Facts, what: str = "") -> str:
    return f"vi {shlex.quote(facts['file'])}" + (f"  # {what}" if what else "")


def _many(count: int, thing: str) -> str:
    plural = {"address": "addresses"}.get(thing, thing + "s")
    return f"{count} {thing if count == 1 else plural}"


def _listed(thing: str, numbers: list[int], *, verb: bool = True) -> str:
    one = len(numbers) == 1
    end = (" is" if one else " are") if verb else ""
    return f"{thing if one else thing + 's'} {_numbers(numbers)}{end}"


def _numbers(numbers: Iterable[int]) -> str:
    """``0 to 3, 6``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = []
    for first, last in runs[:12]:
        words.append(
            str(first)
            if first == last
            else f"{first}, {last}"
            if last == first + 1
            else f"{first} to {last}"
        )
    return ", ".join(words) + (", ..." if len(runs) > 12 else "")


def _others(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


RULES: dict[str, Rule] = {
    "status": _status,
    "counts": _counts,
    "text": _text,
    "servers": _server_ids,
    "ranks": _ranks,
    "devices": _devices,
    "device_ip": _addresses,
    "SuperPoDs": _pods,
    "this machine": _this_machine,
    "RANK_TABLE_FILE": _rank_table_file,
    "RANK_SIZE": _rank_size,
    "RANK_ID": _rank_id,
    "DEVICE_ID": _device_id,
    "ASCEND_RT_VISIBLE_DEVICES": _visible,
}
