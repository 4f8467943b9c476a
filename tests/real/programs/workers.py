"""A Python program whose work is done by processes of its own, begun in the way of multiprocessing that is
named: fork, spawn or forkserver.

They compute all the time: a pool by map and imap, a helper behind queues, a manager that keeps a dictionary behind its
socket, another helper that changes shared memory under a lock. What they come to is known beforehand, and compared; the
rounds that were right are counted in the file "rounds". When the file "stop" is there, all of it is taken down.
"""
import multiprocessing
import os
import sys
from multiprocessing import shared_memory

CELLS = 64


def power(number):
    return sum(pow(number, n, 1000003) for n in range(200))


def forward(questions, answers):
    """Answers each number by its square, in the order they come."""
    for number in iter(questions.get, None):
        answers.put((number, number * number))
    answers.put(None)


def add_to_cells(name, lock, turns):
    """Adds one to every cell of the shared memory, whenever it is told to."""
    memory = shared_memory.SharedMemory(name)
    cells = memory.buf.cast("q")
    while turns.recv():
        with lock:
            for index in range(CELLS):
                cells[index] += 1
        turns.send("done")
    cells.release()
    memory.close()


def work(method):
    context = multiprocessing.get_context(method)
    questions, answers = context.Queue(), context.Queue()
    here, there = context.Pipe()
    memory, lock = shared_memory.SharedMemory(create=True, size=CELLS * 8), context.Lock()
    helpers = [context.Process(target=forward, args=(questions, answers)),
               context.Process(target=add_to_cells, args=(memory.name, lock, there))]
    for helper in helpers:
        helper.start()
    expected = [power(n) for n in range(100)]
    with context.Pool(2) as pool, context.Manager() as manager:
        shared = manager.dict()
        rounds = 0
        while not os.path.exists("stop"):
            for number in range(50):
                questions.put(number + rounds)
            here.send(True)
            assert pool.map(power, range(100), chunksize=7) == expected, "map"
            assert list(pool.imap(power, range(100), chunksize=5)) == expected, "imap"
            assert [answers.get() for _ in range(50)] == [(n, n * n) for n in range(rounds, rounds + 50)], "queue"
            shared[rounds] = rounds * 3
            assert shared[rounds] == rounds * 3 and len(shared) == rounds + 1, "manager"
            assert here.recv() == "done", "pipe"
            rounds += 1
            assert set(memory.buf.cast("q")[:CELLS]) == {rounds}, "shared memory"
            with open("rounds.new", "w") as out:
                out.write(f"{rounds}\n")
            os.rename("rounds.new", "rounds")
    questions.put(None)
    assert answers.get() is None, "end of the queue"
    here.send(False)
    for helper in helpers:
        helper.join()
        assert helper.exitcode == 0, "exit code"
    memory.close()
    memory.unlink()


if __name__ == "__main__":
    work(sys.argv[1])
    print("all is as it should be")
