// The header and the library from C++: a page that is written is found.
#include <sealpoint/write_watch.h>

#include <cstdio>
#include <sys/mman.h>

int main()
{
	const size_t size = 16 * 4096;
	char *memory = static_cast<char *>(mmap(nullptr, size, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	sp_span ram{memory, memory + size}, written[4];
	sp_write_watch *watch = nullptr;

	if (sp_write_watch_open(&watch, ram, SP_WRITE_WATCH_AUTO) < 0)
		return 1;
	memory[3 * 4096] = 1;
	ssize_t count = sp_write_watch_ranges(watch, &ram, SP_WRITE_WATCH_RESET, written, 4);
	bool right = count == 1 && written[0].start == memory + 3 * 4096;
	std::printf("%s\n", sp_write_watch_backend_name(sp_write_watch_backend(watch)));
	sp_write_watch_close(watch);
	return right ? 0 : 1;
}
