//go:build darwin || linux

package rabbitmq

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// loadControl has the server load the program of rabbitmqctl, which is an archive of Erlang
// modules, after the server's own modules. It returns false if there is no such archive.
const loadControl = `global:trans({rabbitmqctl, self()}, fun() ->
    case code:ensure_loaded('Elixir.RabbitMQCtl') of
        {module, _} -> true;
        {error, _} ->
            Script = filename:join([filename:dirname(os:getenv("RABBITMQ_PLUGINS_DIR")), "escript", "rabbitmqctl"]),
            Extracted = case escript:extract(Script, []) of {ok, Parts} -> Parts; {error, _} -> [] end,
            case lists:keyfind(archive, 1, Extracted) of
                {archive, Archive} ->
                    {ok, Names} = zip:unzip(Archive, [{cwd, filename:join(os:getenv("HOME"), "rabbitmqctl")}]),
                    code:add_pathsz(lists:usort([filename:dirname(N) || N <- Names, filename:extension(N) =:= ".beam"])),
                    application:load(rabbitmqctl),
                    {ok, _} = application:ensure_all_started(elixir),
                    {module, _} = code:ensure_loaded('Elixir.RabbitMQCtl'),
                    true;
                false -> false
            end
    end
end, [node()]).`

// runControl runs a command of rabbitmqctl with the arguments in Arguments, in a process that
// prints to another process. It returns the exit status and the output of a shell, in base64.
const runControl = `
Self = self(),
Print = fun Print(Printed) ->
    receive
        {io_request, From, As, {put_chars, _, Text}} -> From ! {io_reply, As, ok}, Print([Printed, Text]);
        {io_request, From, As, {put_chars, _, M, F, A}} -> From ! {io_reply, As, ok}, Print([Printed, apply(M, F, A)]);
        {io_request, From, As, getopts} -> From ! {io_reply, As, [{binary, true}, {encoding, unicode}]}, Print(Printed);
        {io_request, From, As, _} -> From ! {io_reply, As, {error, enotsup}}, Print(Printed);
        printed -> Self ! {printed, Printed}
    end
end,
Device = spawn(fun() -> Print([]) end),
Show = fun(Output, Command, Options) ->
    Formatter = 'Elixir.RabbitMQ.CLI.Core.Config':get_formatter(Command, Options),
    Printer = 'Elixir.RabbitMQ.CLI.Core.Config':get_printer(Command, Options),
    'Elixir.RabbitMQ.CLI.Core.Output':print_output('Elixir.RabbitMQ.CLI.Core.Output':format_output(Output, Formatter, Options), Printer, Options)
end,
{Process, Monitor} = spawn_monitor(fun() ->
    group_leader(Device, self()),
    exit({ended, 'Elixir.RabbitMQCtl':exec_command([<<"--script-name">>, <<"rabbitmqctl">>, <<"--quiet">> | Arguments], Show)})
end),
{Status, More} = receive {'DOWN', Monitor, process, Process, Reason} ->
    case Reason of
        {ended, {error, Code, Text}} -> {Code, Text};
        {ended, {error, Why}} -> {70, io_lib:format("~tp", [Why])};
        {ended, _} -> {0, []};
        _ -> {70, io_lib:format("~tp", [Reason])}
    end
end,
Device ! printed,
receive {printed, All} -> binary_to_list(base64:encode(<<Status, (unicode:characters_to_binary([All, More]))/binary>>)) end.`

// Control runs a command of rabbitmqctl and returns its output, as Ctl does. The server runs
// rabbitmqctl's program, which takes a hundredth of the time of starting Erlang for each
// command. If the server cannot load the program, Control calls Ctl. Use Ctl for a command
// that stops the server.
func (s *Server) Control(ctx context.Context, args ...string) (string, error) {
	loaded, err := s.Eval(ctx, loadControl)
	if err != nil {
		return "", fmt.Errorf("rabbitmq: load rabbitmqctl: %w", err)
	}
	if loaded != "true" {
		return s.Ctl(ctx, args...)
	}
	printed, err := s.control(ctx, args)
	if err != nil {
		// The arguments after the first may be secret.
		return "", fmt.Errorf("rabbitmq: rabbitmqctl %s: %w", strings.Join(args[:min(1, len(args))], ""), err)
	}
	return strings.TrimSuffix(printed, "\n"), nil
}

func (s *Server) control(ctx context.Context, args []string) (string, error) {
	binaries := make([]string, len(args))
	for i, arg := range args {
		bytes := make([]string, len(arg))
		for j := range len(arg) {
			bytes[j] = strconv.Itoa(int(arg[j]))
		}
		binaries[i] = "<<" + strings.Join(bytes, ",") + ">>"
	}
	answer, err := s.eval(ctx, "Arguments = ["+strings.Join(binaries, ",")+"],"+runControl)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", err
	}
	text, err := base64.StdEncoding.DecodeString(strings.Trim(answer, `"`))
	if err == nil && len(text) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("the answer %s: %w", answer, err)
	}
	if status := text[0]; status != 0 {
		return "", fmt.Errorf("exit status %d: %s", status, strings.TrimSpace(string(text[1:])))
	}
	return string(text[1:]), nil
}
