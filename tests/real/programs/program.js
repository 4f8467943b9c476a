// A Node.js program with state of many sorts, which answers on a TCP port whether it still has it: a Map of a
// million entries, timers, promises that wait on the thread pool, worker threads that count in shared memory and
// talk by messages, compiled code that has run hot. Each request answers "ok STEP" or what differs.
'use strict';
const net = require('net');
const fs = require('fs/promises');
const {Worker, isMainThread, parentPort, workerData} = require('worker_threads');

function workerMain() {
	const counters = new Int32Array(workerData.shared);
	let fibonacci = [0, 1];
	setInterval(() => {
		Atomics.add(counters, workerData.index, 1);
		fibonacci = [fibonacci[1], (fibonacci[0] + fibonacci[1]) % 1000003];
	}, 2);
	parentPort.on('message', (n) => parentPort.postMessage(n * 2 + workerData.index));
}

function checksum(map) {
	let sum = 0;
	for (const [key, value] of map) {
		sum = (sum * 31 + key.length + value.n) % 2147483647;
	}
	return sum;
}

function delay(ms) {
	return new Promise((resolve) => setTimeout(resolve, ms));
}

function mainMain() {
	const port = Number(process.argv[2]);
	const shared = new SharedArrayBuffer(64);
	const counters = new Int32Array(shared);
	const workers = [1, 2].map((index) => new Worker(__filename, {workerData: {shared, index}}));
	const map = new Map();
	let ticks = 0;
	let step = 0;

	for (let n = 0; n < 1000000; n++) {
		map.set(`key ${n}`, {n, text: `value ${n % 1000}`});
	}
	const sum = checksum(map);
	setInterval(() => ticks++, 3);

	function askWorker(worker, n) {
		return new Promise((resolve) => {
			worker.once('message', resolve);
			worker.postMessage(n);
		});
	}

	async function check() {
		const before = [ticks, counters[1], counters[2]];
		for (let waited = 0; waited < 20000; waited += 10) {
			await delay(10);
			if (ticks > before[0] && counters[1] > before[1] && counters[2] > before[2]) {
				break;
			}
		}
		if (ticks === before[0]) return 'the timer stands still';
		if (counters[1] === before[1] || counters[2] === before[2]) return 'a worker stands still';
		for (const [i, worker] of workers.entries()) {
			if (await askWorker(worker, step) !== step * 2 + i + 1) return 'a worker answers wrongly';
		}
		if (map.size !== 1000000 + step || checksum(map) === undefined) return 'the map has another size';
		for (let n = 0; n < 1000000; n += 7) {
			const value = map.get(`key ${n}`);
			if (!value || value.n !== n || value.text !== `value ${n % 1000}`) return `entry ${n} differs`;
		}
		if (step === 0 && checksum(map) !== sum) return 'the map has other contents';
		map.set(`step ${step}`, {n: step, text: ''});
		await fs.appendFile('steps', `${step}\n`);
		const lines = (await fs.readFile('steps', 'utf8')).trim().split('\n');
		if (lines.length !== step + 1) return `the file has ${lines.length} lines`;
		return `ok ${step++}`;
	}

	net.createServer((socket) => {
		socket.once('data', () => check().then((answer) => socket.end(answer + '\n')));
	}).listen(port, '127.0.0.1');
}

if (isMainThread) {
	mainMain();
} else {
	workerMain();
}
