"""A Python program with state of many sorts, which answers on a TCP port whether it still has it.

Threads that count, a generator half consumed, a random number generator, a sqlite database in WAL mode with
memory-mapped reads and a statement half stepped through. Each request goes one step on with all of them and
answers "ok STEP" or what differs.
"""
import random
import socket
import sqlite3
import sys
import threading
import time

PORT = int(sys.argv[1])
ROWS = 20000


class Counter(threading.Thread):
    """Counts, checking that two ways of counting agree, at 200 steps a second or as fast as it can."""

    def __init__(self, pause):
        super().__init__(daemon=True)
        self.pause, self.count, self.total, self.wrong = pause, 0, 0, False

    def run(self):
        while True:
            self.count += 1
            self.total += self.count
            if self.total != self.count * (self.count + 1) // 2:
                self.wrong = True
            if self.pause:
                time.sleep(self.pause)


def squares():
    memory = []
    for number in range(10**9):
        memory.append(number * number)
        yield sum(memory[-10:])


def expected_square(step):
    return sum(n * n for n in range(max(0, step - 9), step + 1))


def open_database():
    database = sqlite3.connect("data.sqlite", isolation_level=None)
    assert database.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal"
    database.execute("PRAGMA mmap_size=268435456")
    database.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY, text TEXT)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO numbers VALUES (?, ?)", ((n, f"number {n * 37}") for n in range(ROWS)))
    database.execute("COMMIT")
    database.execute("CREATE TEMP TABLE steps (step INTEGER)")
    return database


def main():
    database = open_database()
    half_read = database.execute("SELECT n, text FROM numbers ORDER BY n")
    generator = squares()
    dice = random.Random(42)
    dice_again = random.Random(42)
    counters = [Counter(0), Counter(0.005), Counter(0.02)]
    for counter in counters:
        counter.start()
    big = {n: str(n) * 3 for n in range(200000)}
    started = time.monotonic()

    def step(number):
        for counter in counters:
            before = counter.count
            deadline = time.monotonic() + 20
            while counter.count == before:
                if time.monotonic() > deadline:
                    return "a thread stands still"
                time.sleep(0.002)
            if counter.wrong:
                return "a thread has miscounted"
        if next(generator) != expected_square(number):
            return "the generator is not where it was"
        for _ in range(1000):
            if dice.random() != dice_again.random():
                return "the random numbers differ"
        for expected in range(number * 100, number * 100 + 100):
            row = half_read.fetchone()
            if row != (expected, f"number {expected * 37}"):
                return f"the statement yields {row}, not row {expected}"
        database.execute("INSERT INTO numbers VALUES (?, ?)", (ROWS + number, f"step {number}"))
        database.execute("INSERT INTO temp.steps VALUES (?)", (number,))
        if database.execute("SELECT count(*) FROM numbers").fetchone()[0] != ROWS + number + 1:
            return "the database has lost a row"
        if database.execute("SELECT count(*) FROM temp.steps").fetchone()[0] != number + 1:
            return "the temporary table has lost a row"
        if database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
            return "the database is damaged"
        if len(big) != 200000 or any(big[n] != str(n) * 3 for n in range(0, 200000, 97)):
            return "the dictionary differs"
        if time.monotonic() < started:
            return "the monotonic clock went back"
        return f"ok {number}"

    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", PORT))
    server.listen(5)
    number = 0
    while True:
        connection, _ = server.accept()
        connection.recv(100)
        connection.sendall(step(number).encode() + b"\n")
        connection.close()
        number += 1


main()
