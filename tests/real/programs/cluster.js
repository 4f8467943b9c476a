// A Node.js cluster: a primary that hands each connection to one of its two workers, and sends a number to and fro with
// each of them all the time. A worker answers a connection with what the primary says: how many it has been told of, how
// many numbers came back, and what is wrong, if anything. The primary begins a worker for each that ends.
'use strict';
const cluster = require('cluster');
const net = require('net');

function primary() {
	let connections = 0;
	let returned = 0;
	let wrong = '';

	function begin() {
		const worker = cluster.fork();
		let number = 0;
		worker.on('online', () => worker.send({number}));
		worker.on('message', (message) => {
			if ('connection' in message) {
				connections++;
				worker.send({connection: message.connection, answer: `${connections} ${returned} ${wrong}`});
				return;
			}
			if (message.number !== ++number) {
				wrong = `number ${message.number} came for ${number}`;
			}
			returned++;
			worker.send({number});
		});
	}
	cluster.on('exit', begin);
	begin();
	begin();
}

function worker() {
	const waiting = new Map();
	let last = -1;
	let next = 0;
	process.on('message', (message) => {
		if ('connection' in message) {
			waiting.get(message.connection).end(`${process.pid} ${message.answer}\n`);
			waiting.delete(message.connection);
			return;
		}
		process.send({number: message.number === last + 1 ? message.number + 1 : -1});
		last = message.number;
	});
	net.createServer((socket) => {
		const connection = next++;
		waiting.set(connection, socket);
		socket.once('data', () => process.send({connection}));
	}).listen(Number(process.argv[2]), '127.0.0.1');
}

if (cluster.isPrimary) {
	primary();
} else {
	worker();
}
