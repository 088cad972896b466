//go:build darwin || linux

package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// evaluator is a program that every server also runs: it evaluates expressions that arrive on
// the socket evalSocket. Each message begins with its length in four bytes. An answer has one
// more byte: 0 before a value, 1 before an error.
const evaluator = `spawn(fun() ->
    Path = filename:join(os:getenv("HOME"), "` + evalSocket + `"),
    file:delete(Path),
    {ok, Listener} = gen_tcp:listen(0, [{ifaddr, {local, Path}}, binary, {packet, 4}, {active, false}, {backlog, 128}]),
    Answer = fun(Text) ->
        try
            {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text)),
            {ok, Expressions} = erl_parse:parse_exprs(Tokens),
            {value, Value, _} = erl_eval:exprs(Expressions, erl_eval:new_bindings()),
            [0, unicode:characters_to_binary(io_lib:format("~0tp", [Value]))]
        catch Class:Reason ->
            [1, unicode:characters_to_binary(io_lib:format("~0tp: ~0tp", [Class, Reason]))]
        end
    end,
    Serve = fun(Socket) ->
        receive accepted -> ok end,
        case gen_tcp:recv(Socket, 0) of
            {ok, Text} -> gen_tcp:send(Socket, Answer(Text));
            {error, _} -> ok
        end,
        gen_tcp:close(Socket)
    end,
    Accept = fun Again() ->
        {ok, Socket} = gen_tcp:accept(Listener),
        Server = spawn(fun() -> Serve(Socket) end),
        ok = gen_tcp:controlling_process(Socket, Server),
        Server ! accepted,
        Again()
    end,
    Accept()
end).
`

// Eval has the server evaluate an Erlang expression, which ends with a full stop, and returns
// its value in Erlang syntax, in one line. It is rabbitmqctl eval without the start of
// another Erlang, which takes half a second of processor time.
func (s *Server) Eval(ctx context.Context, expression string) (string, error) {
	value, err := s.eval(ctx, expression)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("rabbitmq: evaluate %s: %w", expression, err)
	}
	return value, nil
}

func (s *Server) eval(ctx context.Context, expression string) (string, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.files.path(filepath.Join(homeFiles, evalSocket)))
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // the answer has been read
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	message := append(binary.BigEndian.AppendUint32(nil, uint32(len(expression))), expression...) //nolint:gosec // a test's expression, of a few lines
	if _, err := c.Write(message); err != nil {
		return "", err
	}
	var length uint32
	if err := binary.Read(c, binary.BigEndian, &length); err != nil {
		return "", fmt.Errorf("it does not answer: %w", err)
	}
	answer := make([]byte, length)
	if _, err := io.ReadFull(c, answer); err != nil {
		return "", fmt.Errorf("its answer ends: %w", err)
	}
	switch {
	case length == 0:
		return "", errors.New("its answer is empty")
	case answer[0] != 0:
		return "", errors.New(string(answer[1:]))
	}
	return string(answer[1:]), nil
}

// writeAll has a server write its buffered metadata.
//
// A server that is killed within two seconds after it has confirmed the declaration of a
// queue may lose the queue, because it buffers the log of its metadata. For a quorum queue it
// may lose the name of the queue's log: then the queue exists after the restart but does not
// work. Both are behaviour of RabbitMQ, in 3.10 and in 4.0, which is not the subject of tests
// that kill a server.
const writeAll = `catch mnesia:sync_log(), catch dets:sync(ra_directory_reverse).`

// sync has the server write its metadata, unless it is frozen or has ended.
func (s *Server) sync(p *process.Process) error {
	if s.frozen.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	go func() {
		select {
		case <-p.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	_, err := s.Eval(ctx, writeAll)
	select {
	case <-p.Exited(): // it has nothing to write
		return nil
	default:
		return err
	}
}
