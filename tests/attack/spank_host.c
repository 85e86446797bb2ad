/*
 * Loads the SPANK plugin as srun, sbatch and slurmstepd do, with the arguments and environment of
 * this process: spank_host CONTEXT OPTION PLUGIN_ARGUMENT... Prints what the plugin set.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

static int context;
static struct spank_option *registered;

spank_context_t spank_context(void)
{
	return context;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void) spank;
	registered = option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list rest;

	(void) spank;
	va_start(rest, item);
	*va_arg(rest, uint32_t *) = item == S_JOB_ID ? 7 : SLURM_BATCH_SCRIPT;
	va_end(rest);
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int length)
{
	const char *found = getenv(name);

	(void) spank;
	if (!found)
		return ESPANK_ENV_NOEXIST;
	snprintf(value, (size_t) length, "%s", found);
	return strlen(found) < (size_t) length ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	(void) spank;
	(void) overwrite;
	printf("%s=%s\n", name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int over)
{
	return spank_setenv(spank, name, value, over);
}

void slurm_error(const char *format, ...)
{
	va_list rest;

	va_start(rest, format);
	vprintf(format, rest);
	va_end(rest);
	puts("");
}

void slurm_info(const char *format, ...)
{
	va_list rest;

	va_start(rest, format);
	vprintf(format, rest);
	va_end(rest);
	puts("");
}

int slurm_spank_init(spank_t spank, int count, char **arguments);
int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments);
int slurm_spank_user_init(spank_t spank, int count, char **arguments);
int slurm_spank_task_init(spank_t spank, int count, char **arguments);

int main(int count, char **arguments)
{
	context = atoi(arguments[1]);
	slurm_spank_init(NULL, count - 3, arguments + 3);
	if (registered)
		registered->cb(registered->val, arguments[2], context == S_CTX_REMOTE);
	slurm_spank_init_post_opt(NULL, count - 3, arguments + 3);
	if (context == S_CTX_REMOTE) {
		slurm_spank_user_init(NULL, count - 3, arguments + 3);
		slurm_spank_task_init(NULL, count - 3, arguments + 3);
	}
	return 0;
}
