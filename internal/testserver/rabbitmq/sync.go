//go:build darwin || linux

package rabbitmq

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// syncOnRequest is a program that every server runs beside itself: when the file
// syncRequest appears, it writes what the server still keeps to itself, and removes
// the file.
//
// A server that is killed within two seconds of the declaration of a queue may have
// lost the queue, though it has answered: the log of its metadata is buffered. Of a
// quorum queue it may have lost the name of its log: the queue is then there after
// the restart and does nothing. Both are RabbitMQ's own, in 3.10 and in 4.0. A test
// that kills a server looks for something else.
const syncOnRequest = `spawn(fun Again() ->
    File = filename:join(os:getenv("HOME"), "` + syncRequest + `"),
    case filelib:is_file(File) of
        true ->
            catch mnesia:sync_log(),
            catch dets:sync(ra_directory_reverse),
            file:delete(File);
        false ->
            timer:sleep(5)
    end,
    Again()
end).
`

// syncPatience is how long a server gets to write what it must. One that a test has
// frozen does not.
const syncPatience = 2 * time.Second

// sync has the server write what exists.
func (s *Server) sync(p *process.Process) error {
	request := filepath.Join(homeFiles, syncRequest)
	if err := s.files.write(request, ""); err != nil {
		return err
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	for deadline := time.After(syncPatience); ; {
		if _, err := os.Stat(s.files.path(request)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		select {
		case <-p.Exited():
			return s.files.remove(request)
		case <-deadline:
			return s.files.remove(request)
		case <-ticks.C:
		}
	}
}
