/*
 * Adds --auto-resume=0|1 to srun, sbatch and salloc. `holdfast slurm install` builds it against the
 * headers of the Slurm that is there, and writes its line into plugstack.conf:
 *
 *   optional /PATH/holdfast_auto_resume.so supervisor=/PATH/holdfast [--grace=10s ...]
 *
 * With --auto-resume=1, given to srun or to the sbatch or salloc around it, srun is replaced by
 * "holdfast slurm supervise [--grace=10s ...] -- srun ...", before anything was launched; that keeps
 * auto-resume in the Comment of the job, for the controller. A batch job has it kept there when its
 * script begins. Ranks have AUTO_RESUME, Prolog and Epilog have SPANK_AUTO_RESUME. Whatever
 * fails is logged, and the job runs as if there were no plugin.
 *
 * slurmctld is queried by other processes only: in slurmstepd, Slurm 24.11 ends the step for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

SPANK_PLUGIN(holdfast_auto_resume, 1)

#define SUPERVISED "HOLDFAST_SUPERVISED"	/* the job whose srun has a supervisor already */
#define PATH_LENGTH 4096

static char auto_resume[2] = "";		/* "0" or "1"; empty if the option was not given */
static const char *supervisor = NULL;	/* Slurm keeps the arguments of plugins */

static int take_auto_resume(int val, const char *argument, int remote)
{
	(void) val;
	(void) remote;
	if (!argument || (strcmp(argument, "0") && strcmp(argument, "1"))) {
		slurm_error("--auto-resume is 1 to resume the job after a node's fault, or 0: not '%.100s'",
			    argument ? argument : "");
		return -1;
	}
	auto_resume[0] = argument[0];
	return 0;
}

static struct spank_option option = {
	.name = "auto-resume",
	.arginfo = "0|1",
	.usage = "resume the job after a fault of a node",
	.has_arg = 1,
	.val = 0,
	.cb = take_auto_resume,
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	spank_context_t context = spank_context();

	for (int i = 0; i < count; i++) {
		if (!strncmp(arguments[i], "supervisor=", strlen("supervisor=")))
			supervisor = arguments[i] + strlen("supervisor=");
		else if (strncmp(arguments[i], "--", 2))
			slurm_error("holdfast: plugstack.conf: '%.100s' is unknown", arguments[i]);
	}
	if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE)
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
			slurm_error("holdfast: --auto-resume cannot be had: another plugin has it");
	return 0;
}

/* The command line of this process, word behind word, each with its NUL; NULL if it is not had. */
static char *command_line(size_t *length)
{
	size_t room = PATH_LENGTH;
	char *text = malloc(room), *more;
	int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t got = -1;

	*length = 0;
	while (text && file >= 0 && (got = read(file, text + *length, room - *length)) > 0) {
		*length += (size_t) got;
		if (*length < room)
			continue;
		more = realloc(text, room *= 2);
		if (!more)
			break;
		text = more;
	}
	if (file >= 0)
		close(file);
	if (got == 0 && *length && !text[*length - 1])
		return text;
	free(text);
	return NULL;
}

/* Whether this srun is the shell of a salloc: its steps have a supervisor each, it has none. */
static int is_shell(const char *line, size_t length)
{
	const char *word = line + strlen(line) + 1;

	for (; word < line + length && word[0] == '-'; word += strlen(word) + 1)
		if (!strcmp(word, "--interactive"))
			return 1;
	return 0;
}

/* Returns only if no supervisor is run. */
static void become_supervisor(int count, char **arguments)
{
	char program[PATH_LENGTH];
	size_t length, words = 0, at = 0;
	ssize_t name = readlink("/proc/self/exe", program, sizeof(program) - 1);
	char *line = command_line(&length);
	char **command;

	for (size_t i = 0; line && i < length; i++)
		words += !line[i];
	command = line ? calloc((size_t) count + words + 8, sizeof(char *)) : NULL;
	if (!command || name <= 0) {
		slurm_error("holdfast: this command line cannot be read; no supervisor is started");
		goto end;
	}
	if (is_shell(line, length))
		goto end;
	program[name] = '\0';
	command[at++] = (char *) supervisor;
	command[at++] = "slurm";
	command[at++] = "supervise";
	for (int i = 0; i < count; i++)
		if (!strncmp(arguments[i], "--", 2))
			command[at++] = arguments[i];
	command[at++] = "--";
	command[at++] = program;
	for (char *word = line + strlen(line) + 1; word < line + length; word += strlen(word) + 1)
		command[at++] = word;
	execv(supervisor, command);
	slurm_error("holdfast: cannot run %s: %s; this step is not resumed", supervisor,
		    strerror(errno));
end:
	free(line);
	free(command);
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
	spank_context_t context = spank_context();
	const char *job = getenv("SLURM_JOB_ID"), *supervised = getenv(SUPERVISED);

	if (!auto_resume[0] || (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR))
		return 0;
	spank_job_control_setenv(spank, "AUTO_RESUME", auto_resume, 1);
	if (context == S_CTX_ALLOCATOR || auto_resume[0] != '1')
		return 0;
	if (!job)
		slurm_info("holdfast: --auto-resume has no effect on srun alone: use it in a job of"
			   " sbatch or salloc");
	else if (supervisor && (!supervised || strcmp(job, supervised)))
		become_supervisor(count, arguments);
	return 0;
}

int slurm_spank_user_init(spank_t spank, int count, char **arguments)
{
	uint32_t step = SLURM_BATCH_SCRIPT;

	(void) count;
	(void) arguments;
	spank_get_item(spank, S_JOB_STEPID, &step);
	/* not in a script or a shell: there, AUTO_RESUME is a usual name for the option itself */
	if (auto_resume[0] && step != SLURM_BATCH_SCRIPT && step != SLURM_INTERACTIVE_STEP)
		spank_setenv(spank, "AUTO_RESUME", auto_resume, 1);
	return 0;
}

/* In the process that becomes the script, as its user: keeps auto-resume, and is not waited for. */
int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	uint32_t job = 0, step = 0;
	char value[PATH_LENGTH], number[16], option_text[sizeof("--set-auto-resume=1")];
	pid_t child;

	(void) count;
	(void) arguments;
	if (!auto_resume[0] || !supervisor || spank_get_item(spank, S_JOB_STEPID, &step) ||
	    step != SLURM_BATCH_SCRIPT || spank_get_item(spank, S_JOB_ID, &job))
		return 0;
	child = fork();
	if (child > 0)
		waitpid(child, NULL, 0);
	if (child != 0)
		return 0;
	if (fork() == 0) {
		if (spank_getenv(spank, "PATH", value, sizeof(value)) == ESPANK_SUCCESS)
			setenv("PATH", value, 1);
		if (spank_getenv(spank, "SLURM_CONF", value, sizeof(value)) == ESPANK_SUCCESS)
			setenv("SLURM_CONF", value, 1);
		snprintf(number, sizeof(number), "%u", job);
		setenv("SLURM_JOB_ID", number, 1);
		snprintf(option_text, sizeof(option_text), "--set-auto-resume=%s", auto_resume);
		execl(supervisor, supervisor, "slurm", "supervise", option_text, (char *) NULL);
		fprintf(stderr, "holdfast: cannot run %s: %s\n", supervisor, strerror(errno));
	}
	_exit(0);
}
