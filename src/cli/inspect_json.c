/* A checkpoint, or a running process, as one JSON object. Field names are stable: they are added to, not changed. */
#include "cli/inspect.h"

#include "base/cleanup.h"

#include <string.h>

static json_t *hex(ProtobufCBinaryData bytes)
{
	sp_cleanup_free char *text = sp_format_hex(bytes.data, bytes.len);

	return json_string(text);
}

static json_t *facet_list(Sealpoint__Facet *const *facets, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(
		        list,
		        json_pack("{s:o, s:o, s:o}", "name", sp_json_text(facets[i]->name), "title",
		                  sp_json_text(sp_facet_title(facets[i])), "description",
		                  sp_json_text(sp_describe_facet(facets[i]).text)));
	return list;
}

static json_t *process_object(const Sealpoint__Process *process)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:I, "
	                 "s:o, s:o, s:o, s:o}",
	                 "pid", (json_int_t)process->pid, "parent_pid", (json_int_t)process->ppid,
	                 "process_group", (json_int_t)process->pgid, "session",
	                 (json_int_t)process->sid, "terminal_file", (json_int_t)process->terminal,
	                 "foreground_group", (json_int_t)process->foreground, "descriptors_of",
	                 (json_int_t)process->descriptors_of, "directories_of",
	                 (json_int_t)process->directories_of, "memory_of",
	                 (json_int_t)process->memory_of, "actions_of",
	                 (json_int_t)process->actions_of, "stopped", process->stopped, "ended",
	                 process->ended, "leader_ended", process->leader_ended, "wait_status",
	                 (json_int_t)process->wait_status, "name", sp_json_text(process->comm),
	                 "executable", sp_json_text(process->executable), "command_line",
	                 sp_json_text(process->command_line), "state",
	                 facet_list(process->facets, process->n_facets));
}

static json_t *process_list(const struct sp_inspection *inspection)
{
	const struct sp_array *processes = &inspection->checkpoint->processes;
	json_t *list = json_array();

	for (size_t i = 0; i < processes->count; i++)
		json_array_append_new(list, process_object(sp_array_pointer(processes, i)));
	return list;
}

static json_t *thread_list(const struct sp_inspection *inspection)
{
	const struct sp_array *threads = &inspection->checkpoint->threads;
	json_t *list = json_array();

	for (size_t i = 0; i < threads->count; i++) {
		const Sealpoint__Thread *thread = sp_array_pointer(threads, i);

		json_array_append_new(
		        list, json_pack("{s:I, s:I, s:o, s:o, s:I, s:o}", "pid",
		                        (json_int_t)thread->pid, "tid", (json_int_t)thread->tid,
		                        "name", sp_json_text(thread->comm), "blocked_signals",
		                        sp_json_address(thread->signal_mask),
		                        "extended_state_bytes", (json_int_t)thread->xstate.len,
		                        "state", facet_list(thread->facets, thread->n_facets)));
	}
	return list;
}

static json_t *flag_list(uint32_t flags)
{
	json_t *list = json_array();
	const char *flag;
	size_t next = 0;

	while ((flag = sp_mapping_flag(flags, &next)))
		json_array_append_new(list, json_string(flag));
	return list;
}

static json_t *mapping_object(const struct sp_mapping_summary *summary)
{
	const Sealpoint__Vma *vma = summary->vma;
	char prot[5];

	sp_vma_describe_prot((int)vma->prot, vma->flags, prot);
	return json_pack("{s:o, s:o, s:I, s:s, s:s, s:b, s:o, s:I, s:I, s:I, s:o, s:o, s:I, s:o}",
	                 "start", sp_json_address(vma->start), "end", sp_json_address(vma->end),
	                 "bytes", (json_int_t)(vma->end - vma->start), "protection", prot, "kind",
	                 sp_vma_kind_name(vma->kind), "sealed", !!(vma->flags & SP_VMA_SEALED),
	                 "flags", flag_list(vma->flags), "page_size",
	                 (json_int_t)1 << vma->page_shift, "protection_key",
	                 (json_int_t)vma->protection_key, "file", (json_int_t)vma->file, "path",
	                 sp_json_text(vma->path), "name", sp_json_text(vma->name), "offset",
	                 (json_int_t)vma->offset, "pages", sp_page_counts_object(summary->pages));
}

static json_t *mapping_list(const struct sp_inspection *inspection)
{
	json_t *list = json_array();

	for (size_t i = 0; i < inspection->mappings->count; i++)
		json_array_append_new(list, mapping_object(sp_array_at(inspection->mappings, i)));
	return list;
}

static json_t *open_file_list(const struct sp_inspection *inspection)
{
	const struct sp_array *files = &inspection->checkpoint->files;
	json_t *list = json_array();

	for (size_t i = 0; i < files->count; i++) {
		const Sealpoint__OpenFile *file = sp_array_pointer(files, i);

		json_array_append_new(
		        list, json_pack("{s:I, s:o, s:o, s:I, s:b, s:o}", "id",
		                        (json_int_t)file->id, "kind", sp_json_text(file->kind),
		                        "title", sp_json_text(sp_file_title(file)), "flags",
		                        (json_int_t)file->flags, "mapping_only", file->mapping_only,
		                        "description", sp_json_text(sp_describe_file(file).text)));
	}
	return list;
}

static json_t *descriptor_list(const struct sp_inspection *inspection)
{
	const struct sp_array *descriptors = &inspection->checkpoint->descriptors;
	json_t *list = json_array();

	for (size_t i = 0; i < descriptors->count; i++) {
		const Sealpoint__Descriptor *descriptor = sp_array_pointer(descriptors, i);

		json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:b}", "pid",
		                                      (json_int_t)descriptor->pid, "number",
		                                      (json_int_t)descriptor->number, "file",
		                                      (json_int_t)descriptor->file, "close_on_exec",
		                                      descriptor->close_on_exec));
	}
	return list;
}

static json_t *image_file_list(const Sealpoint__Manifest *manifest)
{
	json_t *list = json_array();

	for (size_t i = 0; i < manifest->n_files; i++)
		json_array_append_new(list,
		                      json_pack("{s:o, s:I}", "name",
		                                sp_json_text(manifest->files[i]->name), "bytes",
		                                (json_int_t)manifest->files[i]->size));
	return list;
}

static json_t *checkpoint_object(const struct sp_inspection *inspection)
{
	const Sealpoint__Manifest *manifest = inspection->checkpoint->manifest;

	return json_pack(
	        "{s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:o, s:I, s:b, "
	        "s:I, s:I, s:o}",
	        "directory", sp_json_text(inspection->checkpoint->path), "id", hex(manifest->id),
	        "version", json_sprintf("%u.%u", manifest->version_major, manifest->version_minor),
	        "tool_version", sp_json_text(manifest->tool_version), "created_unix_ns",
	        (json_int_t)manifest->created_unix_ns, "hostname", sp_json_text(manifest->hostname),
	        "kernel", sp_json_text(manifest->kernel), "arch", sp_json_text(manifest->arch),
	        "page_size", (json_int_t)manifest->page_size, "parent",
	        sp_json_text(manifest->parent_path), "parent_id", hex(manifest->parent_id),
	        "chain_length", (json_int_t)inspection->members, "session_id",
	        hex(manifest->session_id), "generation", (json_int_t)manifest->generation,
	        "memory_only", manifest->memory_only, "freeze_ns", (json_int_t)manifest->freeze_ns,
	        "image_bytes", (json_int_t)inspection->image.bytes, "files",
	        image_file_list(manifest));
}

json_t *sp_inspection_object(const struct sp_inspection *inspection)
{
	const struct sp_page_stats *pages = &inspection->pages;

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:I, s:I, s:I, s:I, s:I}}",
	                 "checkpoint", checkpoint_object(inspection), "process",
	                 process_object(inspection->process), "processes", process_list(inspection),
	                 "threads", thread_list(inspection), "mappings", mapping_list(inspection),
	                 "open_files", open_file_list(inspection), "descriptors",
	                 descriptor_list(inspection), "pages", "states",
	                 sp_page_counts_object(pages->pages), "contents_bytes",
	                 (json_int_t)pages->raw_bytes, "stored_bytes",
	                 (json_int_t)pages->stored_bytes, "superseded_bytes",
	                 (json_int_t)pages->superseded_bytes, "from_chain",
	                 (json_int_t)sp_pages_from_chain(inspection), "chain_contents_bytes",
	                 (json_int_t)inspection->chain.raw_bytes);
}

static json_t *refusal_list(const struct sp_array *refusals)
{
	json_t *list = json_array();

	for (size_t i = 0; i < refusals->count; i++) {
		const struct sp_error *refusal = sp_array_at(refusals, i);

		json_array_append_new(list, json_pack("{s:s, s:o}", "errno",
		                                      strerrorname_np(refusal->code), "message",
		                                      sp_json_text(refusal->message)));
	}
	return list;
}

json_t *sp_survey_object(const struct sp_inspection *inspection, pid_t pid)
{
	const struct sp_survey *survey = inspection->survey;
	json_t *object =
	        json_pack("{s:i, s:b, s:o, s:I}", "pid", (int)pid, "can_be_saved",
	                  survey->refusals.count == 0, "refusals", refusal_list(&survey->refusals),
	                  "stopped_ns", (json_int_t)survey->stopped_ns);

	if (!survey->checkpoint)
		return object;
	json_object_update_new(object, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o}}",
	                                         "process", process_object(inspection->process),
	                                         "processes", process_list(inspection), "threads",
	                                         thread_list(inspection), "mappings",
	                                         mapping_list(inspection), "open_files",
	                                         open_file_list(inspection), "descriptors",
	                                         descriptor_list(inspection), "pages", "states",
	                                         sp_page_counts_object(inspection->pages.pages)));
	return object;
}
