#!/bin/bash
# Prints commands for a redis-server: `redis_commands.sh write KEYS` makes that many keys of mixed types,
# `redis_commands.sh read KEYS` reads every one of them, in a form whose answer does not depend on the order in
# which the server happens to keep things.
exec awk -v what="$1" -v keys="$2" 'BEGIN {
	for (i = 0; i < keys; i++) {
		type = i % 6
		if (what == "write") {
			if (type == 0) print "SET string:" i " value-" i * 7919
			if (type == 1) print "HSET hash:" i " name n" i " number " i * 31 " text " i "-" i * 17
			if (type == 2) print "RPUSH list:" i " a" i " b" i * 3 " c" i * 5 " d" i * 7
			if (type == 3) print "SADD set:" i " " i " " i + 1 " " i * 2 + 5 " word" i
			if (type == 4) print "ZADD zset:" i " 1.5 a" i " " i " b" i " 3 c"
			if (type == 5) print "XADD stream:" i " " i + 1 "-1 field f" i " other " i * 11
		} else {
			if (type == 0) print "GET string:" i
			if (type == 1) print "HMGET hash:" i " name number text"
			if (type == 2) print "LRANGE list:" i " 0 -1"
			if (type == 3) print "SORT set:" i " ALPHA"
			if (type == 4) print "ZRANGE zset:" i " 0 -1 WITHSCORES"
			if (type == 5) print "XRANGE stream:" i " - +"
		}
	}
	print "QUIT" }'
