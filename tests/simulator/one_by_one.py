"""The simulator once more, as plainly as it can be written: every process, disk, run and block.

Written from docs/explanation/simulator.md, to be compared with the core.
"""

import math
from collections import defaultdict
from heapq import heappop, heappush

import numpy as np


def transfer_ns(bytes_per_s, n_bytes):
    return int(1e9 / bytes_per_s * 2**32 + 0.5) * n_bytes >> 32


def ns(seconds):
    return int(seconds * 1e9 + 0.5)


def mixed(x):
    """splitmix64"""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def delay(p, mean_s, process, n):
    """The n-th of a process."""
    if mean_s == 0:
        return 0
    drawn = mixed((mixed((mixed(p.jitter_seed) + process) % 2**64) + n) % 2**64)
    return int(-math.log(((drawn >> 11) + 1) * 2.0**-53) * mean_s * 1e9)


def runs_of(operation, process):
    """Return the maximal runs of bytes that a process reads, from the selected elements."""
    start, stride, count, block = operation.slabs[process]
    selected = np.zeros(operation.extent, dtype=bool)
    indices = [
        (start[a] + stride[a] * np.arange(count[a])[:, None] + np.arange(block[a])).ravel()
        for a in range(len(operation.extent))
    ]
    selected[np.ix_(*indices)] = True
    size, offset = operation.element_size_bytes, operation.data_offset_bytes
    runs = []
    for element in np.flatnonzero(selected.ravel()):
        at = offset + int(element) * size
        if runs and sum(runs[-1]) == at:
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
        else:
            runs.append((at, size))
    return runs


class System:
    """OSTs, links and disks, and what is under way."""

    def __init__(self, p, n_processes_per_node):
        self.p = p
        self.per_node = n_processes_per_node
        self.events = []
        self.serial = 0
        self.in_memory = defaultdict(set)  # (ost, disk): bytes, by their cell
        self.queue = defaultdict(list)  # (ost, disk): (low, high, message)
        self.busy = {}  # (ost, disk): (low, high, message); None: it rests
        self.last = {}  # (ost, disk): cells of its last access
        self.swept = defaultdict(int)
        self.head = {}
        self.link_free = defaultdict(int)
        self.link_busy = defaultdict(int)
        self.processors_free = {}
        self.disk_busy = defaultdict(int)
        self.messages = self.bytes_sent = self.accesses = self.seeks = self.bytes_read = 0
        self.cell = math.gcd(p.raid.unit_bytes, p.raid.min_request_bytes)
        self.latency = max(1, ns(p.network_latency_s))

    def at(self, time, *what):
        self.serial += 1
        heappush(self.events, (time, self.serial, what))

    def send(self, time, client, ranges, then):
        """Ask for ranges of the file; when all are there, then(time)."""
        request = {"client": client, "open": 0, "done": 0, "then": then}
        request["ranges"] = ranges
        self.at(time + self.latency, "request", request)

    def run(self):
        while self.events:
            now = self.events[0][0]
            arrived, woken = [], []
            while self.events and self.events[0][0] == now:
                _, _, (kind, *of) = heappop(self.events)
                self.happen(now, kind, of, arrived, woken)
            for client, work, then in sorted(woken, key=lambda w: w[0]):
                then(self.processor_done(now, client, work))
            ready = []
            for message in arrived:
                self.take_in(now, message, ready)
            for message in self.freed:
                self.less(message, ready)
            self.freed = []
            disks = {place for place, waiting in self.queue.items() if waiting} - set(self.busy)
            for place in sorted(disks):
                self.start_disk(now, place, ready)
            self.reply(now, ready)

    freed = ()

    def happen(self, now, kind, of, arrived, woken):
        if kind == "request":
            self.open_parts(*of, arrived)
        elif kind == "message":
            self.next_message(*of, arrived)
        elif kind == "rested":
            del self.busy[of[0]]
        elif kind == "wakes":
            woken.append(of)
        else:
            self.end_disk(now, *of)

    def work(self, time, client, work, then):
        """Work for a process; when it is done, then(time)."""
        if work and 0 < self.p.processors_per_node < self.p.processes_per_node:
            self.at(time, "wakes", client, work, then)
        else:
            then(time + work)

    def processor_done(self, now, client, work):
        free = self.processors_free.setdefault(
            client // self.p.processes_per_node, [0] * self.p.processors_per_node
        )
        first = min(range(len(free)), key=free.__getitem__)
        free[first] = max(free[first], now) + work
        return free[first]

    def open_parts(self, request, arrived):
        stripe, n = self.p.stripes.stripe_size_bytes, self.p.stripes.stripe_count
        most = self.p.fetch_bytes or math.inf
        ranges = [(low, min(high, low + most)) for low, high in request["ranges"]]
        left = [(low + most, high) for low, high in request["ranges"]]
        request["ranges"] = [(low, high) for low, high in left if low < high]
        for low, high in ranges:
            parts = defaultdict(list)
            at = low
            while at < high:
                end = min(high, (at // stripe + 1) * stripe)
                ost, turn = at // stripe % n, at // stripe // n
                parts[ost] += [
                    (turn * stripe + at % stripe, turn * stripe + (end - 1) % stripe + 1)
                ]
                at = end
            for ost, pieces in parts.items():
                request["open"] += 1
                part = {"request": request, "ost": ost, "sent": pieces[0][0]}
                part["end"], part["flying"] = pieces[-1][1], 0
                assert sum(b - a for a, b in pieces) == part["end"] - part["sent"]
                for _ in range(self.p.max_rpcs_in_flight):
                    if part["sent"] < part["end"]:
                        part["flying"] += 1
                        self.next_message(part, arrived)
                part["promised"] = part["sent"]

    def message_end(self, part, low):
        return min(part["end"], (low // self.p.rpc_bytes + 1) * self.p.rpc_bytes)

    def next_message(self, part, arrived):
        low = part["sent"]
        part["sent"] = self.message_end(part, low)
        arrived.append({"part": part, "low": low, "high": part["sent"], "waits": 0})

    def wanted(self, message):
        """Return per disk the cells of a message: every block of the widened range is dealt."""
        raid, cells = self.p.raid, defaultdict(list)
        least = raid.min_request_bytes
        low = message["low"] // least * least
        high = -(-message["high"] // least) * least
        for at in range(low, high, self.cell):
            block = at // raid.unit_bytes
            place = block // raid.data_disks * raid.unit_bytes + at % raid.unit_bytes
            cells[block % raid.data_disks].append(place // self.cell)
        return cells

    def take_in(self, now, message, ready):
        ost = message["part"]["ost"]
        for disk, cells in self.wanted(message).items():
            if set(cells) - self.in_memory[ost, disk]:
                message["waits"] += 1
                client = message["part"]["request"]["client"]
                since = now if self.p.ost_forgets else 0
                order = cells[0], -since, cells[-1] + 1, client, message["low"]
                self.queue[ost, disk].append((*order, message))
        if message["waits"] == 0:
            ready.append(message)

    def less(self, message, ready):
        message["waits"] -= 1
        if message["waits"] == 0:
            ready.append(message)

    def end_disk(self, now, place, missing):
        _, _, message = self.busy.pop(place)
        if not self.p.ost_forgets:
            self.in_memory[place] |= set(range(missing[0], missing[-1] + 1))
        self.freed = [*self.freed, message]
        self.rest(now, place)

    def rest(self, now, place):
        pause = ns(self.p.disk_request_s)
        if pause:
            self.busy[place] = None
            self.disk_busy[place] += pause
            self.at(now + pause, "rested", place)

    def start_disk(self, now, place, ready):
        forgets = self.p.ost_forgets
        while self.queue[place] and place not in self.busy:
            begin = self.head.get(place, 0) if forgets else self.swept[place]
            ahead = [w for w in self.queue[place] if w[0] >= begin]
            chosen = min(ahead or self.queue[place], key=lambda w: w[:5])
            self.queue[place].remove(chosen)
            low, _, high, _, _, message = chosen
            self.swept[place] = low
            if forgets and set(range(low, high)) <= self.last.get(place, set()):
                self.less(message, ready)
                self.rest(now, place)
                continue
            missing = [c for c in range(low, high) if c not in self.in_memory[place]]
            if not missing:
                self.less(message, ready)
                continue
            self.last[place] = set(missing)
            positioning, is_seek = self.positioning(place, missing[0])
            n_bytes = (missing[-1] + 1 - missing[0]) * self.cell
            taken = positioning + transfer_ns(self.p.disk_bytes_per_s, n_bytes)
            self.head[place] = missing[-1] + 1
            self.busy[place] = (low, high, message)
            self.disk_busy[place] += taken
            self.accesses += 1
            self.seeks += is_seek
            self.bytes_read += n_bytes
            self.at(now + taken, "disk", place, missing)
            return

    def positioning(self, place, cell):
        p = self.p
        stroke = (p.disk_full_stroke_s - p.disk_settle_s) * 1e9
        half = ns(p.disk_revolution_s / 2)
        if place not in self.head and p.disk_first_s:
            return ns(p.disk_first_s), True
        if place not in self.head:
            return ns(p.disk_settle_s) + int(stroke * 8 / 15) + half, True
        distance = (cell - self.head[place]) * self.cell
        if distance == 0:
            return 0, False
        root = stroke / math.sqrt(p.disk_capacity_bytes) * math.sqrt(abs(distance))
        seek = ns(p.disk_settle_s) + int(root) + half
        through = transfer_ns(p.disk_bytes_per_s, abs(distance))
        return (through, False) if distance > 0 and through <= seek else (seek, True)

    def reply(self, now, ready):
        of_ost = defaultdict(list)
        for message in ready:
            of_ost[message["part"]["ost"]].append(message)
        for ost, messages in of_ost.items():
            nodes = {
                (m["low"], m["high"], m["part"]["request"]["client"] // self.per_node)
                for m in messages
            }
            sending = sum(
                ns(self.p.ost_request_s) + transfer_ns(self.p.ost_bytes_per_s, high - low)
                for low, high, _ in nodes
            )
            self.messages += len(nodes)
            self.bytes_sent += sum(high - low for low, high, _ in nodes)
            self.link_free[ost] = max(self.link_free[ost], now) + sending
            self.link_busy[ost] += sending
            for message in messages:
                self.received(message, self.link_free[ost])

    def received(self, message, sent):
        part = message["part"]
        request = part["request"]
        request["done"] = max(request["done"], sent + self.latency)
        if part["promised"] < part["end"]:
            part["promised"] = self.message_end(part, part["promised"])
            self.at(sent + 2 * self.latency, "message", part)
            return
        part["flying"] -= 1
        if part["flying"]:
            return
        request["open"] -= 1
        if request["open"]:
            return
        if request["ranges"]:
            self.at(request["done"] + self.latency, "request", request)
        else:
            request["then"](request["done"])


class Process:
    """One process of an independent read."""

    def __init__(self, system, operation, number):
        self.system, self.operation, self.number = system, operation, number
        self.fetched = -1
        self.near, self.end_before, self.strip_low, self.strips = 0, None, 0, []
        self.requests = 0
        self.ended = 0
        self.begun = delay(system.p, system.p.client_start_s, number, 0)
        self.fetches = 0
        size = operation.element_size_bytes * math.prod(operation.extent)
        page = system.p.page_bytes
        self.file_end = -(-(operation.data_offset_bytes + size) // page) * page
        self.waiting = self.requests_of(runs_of(operation, number))

    def requests_of(self, runs):
        """Return the program's requests, each as its ranges."""
        if self.operation.strategy == "multiple":
            return [[run] for run in runs]
        if self.operation.strategy == "list":
            depth = self.operation.list_depth
            return [runs[i : i + depth] for i in range(0, len(runs), depth)]
        windows, at = [], 0
        end = sum(runs[-1]) if runs else 0
        for offset, length in runs:
            while max(at, offset) < offset + length:
                low = max(at, offset)
                at = min(low + self.operation.sieve_buffer_bytes, end)
                windows.append([(low, at - low)])
        return windows

    def go_on(self, time, copied=0):
        p, work = self.system.p, copied
        while self.waiting:
            request = self.waiting.pop(0)
            self.requests += 1
            work += ns(p.client_request_s)
            copying = sum(transfer_ns(p.client_bytes_per_s, length) for _, length in request)
            ranges = [r for run in request for r in self.missing(*run)]
            if ranges:
                self.fetches += 1
                work += delay(p, p.client_jitter_s, self.number, self.fetches)
                self.fetch(time, work, ranges, copying)
                return
            work += copying
        self.system.work(time, self.number, work, self.end)

    def fetch(self, time, work, ranges, copying):
        def ask(now):
            self.system.send(now, self.number, ranges, lambda come: self.go_on(come, copying))

        self.system.work(time, self.number, work, ask)

    def end(self, time):
        self.ended = time

    def missing(self, offset, length):
        p = self.system.p
        is_near = self.end_before is not None and (
            offset - self.end_before <= p.read_ahead_gap_bytes
        )
        if is_near:
            self.near += 1
        else:
            if self.end_before is not None:
                end = -(-self.end_before // p.page_bytes) * p.page_bytes
                self.strips.append(end - self.strip_low)
            self.near, self.strip_low = 0, offset // p.page_bytes * p.page_bytes
        self.end_before = offset + length
        low = max(offset // p.page_bytes * p.page_bytes, self.fetched)
        high = -(-(offset + length) // p.page_bytes) * p.page_bytes
        if low >= high:
            return []
        step = p.read_ahead_bytes
        if step and self.near >= p.read_ahead_after:
            end = min(-(-high // step) * step, self.file_end)
            if len(self.strips) > 1 and self.strips[-1] == self.strips[-2]:
                end = min(end, self.strip_low + self.strips[-1])
            high = max(high, end)
        self.fetched = high
        return [(low, high)]


def result(system, elapsed, io, shuffle, requests):
    n = system.p.stripes.stripe_count
    disks = range(system.p.raid.data_disks)
    return {
        "elapsed_ns": elapsed,
        "io_ns": io,
        "shuffle_ns": shuffle,
        "requests": requests,
        "messages": system.messages,
        "bytes_sent": system.bytes_sent,
        "disk_accesses": system.accesses,
        "disk_seeks": system.seeks,
        "bytes_from_disk": system.bytes_read,
        "link_busy_ns": [system.link_busy[ost] for ost in range(n)],
        "disk_busy_ns": [max(system.disk_busy[ost, d] for d in disks) for ost in range(n)],
    }


def independent(operation, p):
    system = System(p, p.processes_per_node)
    processes = [Process(system, operation, i) for i in range(operation.n_processes)]
    for process in processes:
        process.go_on(process.begun)
    system.run()
    elapsed = max((process.ended - process.begun for process in processes), default=0)
    return result(system, elapsed, elapsed, 0, sum(process.requests for process in processes))


def collective(operation, p):
    system = System(p, 1)
    wanted = [
        (byte, process)
        for process in range(operation.n_processes)
        for offset, length in runs_of(operation, process)
        for byte in range(offset, offset + length)
    ]
    if not wanted:
        return result(system, 0, 0, 0, 0)
    n = min(p.n_aggregators, operation.n_processes)
    stripe, page = p.stripes.stripe_size_bytes, p.page_bytes
    start = min(wanted)[0] // stripe * stripe
    end = max(wanted)[0] + 1
    each = math.ceil(math.ceil((end - start) / stripe) / n) * stripe
    domains = []
    for a in range(n):
        low = start + a * each
        mine = [w for w in wanted if low <= w[0] < low + each]
        first = min((w[0] for w in mine), default=0)
        buffers = defaultdict(list)
        for byte, process in mine:
            buffers[(byte - first) // p.collective_buffer_bytes].append((byte, process))
        domains.append(buffers)
    last = max(max(buffers, default=-1) for buffers in domains)
    now = io = shuffle = requests = 0
    for i in range(last + 1):
        ended, handing = [now], [0]
        for a, buffers in enumerate(domains):
            if i not in buffers:
                continue
            held = [byte for byte, _ in buffers[i]]
            low, high = min(held) // page * page, -(-(max(held) + 1) // page) * page
            system.send(now + ns(p.client_request_s), a, [(low, high)], ended.append)
            requests += 1
            handing.append(
                ns(p.shuffle_message_s) * len({process for _, process in buffers[i]})
                + transfer_ns(p.shuffle_bytes_per_s, len(held))
            )
        system.run()
        io += max(ended) - now
        shuffle += max(handing)
        now = max(ended) + max(handing)
    return result(system, now, io, shuffle, requests)


def simulate(operation, parameters):
    way = collective if operation.mode == "collective" else independent
    return way(operation, parameters)
