package rabbitmq

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder notes what is written to it, write by write.
type recorder struct {
	net.Conn
	writes []string
	err    error
	closed bool
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

func (r *recorder) Close() error { r.closed = true; return nil }

func mustWrite(t *testing.T, w io.Writer, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if n, err := io.WriteString(w, f); err != nil || n != len(f) {
			t.Fatalf("Write of %d bytes = %d, %v", len(f), n, err)
		}
	}
}

func TestCoalescingConn_CorkedWritesTogether(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", mostBuffered+1)
	half := strings.Repeat("h", mostBuffered/2+1)
	for what, c := range map[string]struct {
		act  func(c *coalescingConn)
		want []string
	}{
		"nobody holds it": {func(c *coalescingConn) { mustWrite(t, c, "a", "b") }, []string{"a", "b"}},
		"held":            {func(c *coalescingConn) { c.cork(); mustWrite(t, c, "a", "b"); c.uncork(); mustWrite(t, c, "c") }, []string{"ab", "c"}},
		"held by two": {func(c *coalescingConn) {
			c.cork()
			c.cork()
			mustWrite(t, c, "a")
			c.uncork()
			mustWrite(t, c, "b", "c")
			c.uncork()
		}, []string{"a", "bc"}},
		"nothing to write": {func(c *coalescingConn) { c.cork(); c.uncork() }, nil},
		"too much at once": {func(c *coalescingConn) { c.cork(); mustWrite(t, c, "a", large, "b"); c.uncork() }, []string{"a", large, "b"}},
		"too much in all":  {func(c *coalescingConn) { c.cork(); mustWrite(t, c, half, half); c.uncork() }, []string{half, half}},
	} {
		t.Run(what, func(t *testing.T) {
			r := &recorder{}
			c.act(newCoalescingConn(r))
			if strings.Join(r.writes, "|") != strings.Join(c.want, "|") {
				t.Errorf("there are %d writes, %.40q, want %.40q", len(r.writes), r.writes, c.want)
			}
		})
	}
}

// It is closed, as no other caller would be told of the error.
func TestCoalescingConn_FailsOnUncork(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	c := newCoalescingConn(r)
	c.cork()
	mustWrite(t, c, "a")
	r.err = errors.New("broken pipe")
	c.uncork()
	if !r.closed {
		t.Error("it is open")
	}
}

// It loses nothing and keeps each caller's order, whoever holds it.
func TestCoalescingConn_ConcurrentUse(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := newCoalescingConn(ours)
	const writers, frames = 8, 1000
	go func() {
		var wg sync.WaitGroup
		for writer := range writers {
			wg.Go(func() {
				for first := 0; first < frames; first += 10 {
					c.cork()
					for i := first; i < first+10; i++ {
						_, _ = c.Write([]byte{byte(writer), byte(i >> 8), byte(i)})
					}
					c.uncork()
				}
			})
		}
		wg.Wait()
		_ = ours.Close()
	}()
	got, err := io.ReadAll(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var next [writers]int
	for frame := range slices.Chunk(got, 3) {
		writer, i := frame[0], int(frame[1])<<8|int(frame[2])
		if i != next[writer] {
			t.Fatalf("writer %d: %d came after %d", writer, i, next[writer]-1)
		}
		next[writer]++
	}
	for writer, n := range next {
		if n != frames {
			t.Errorf("writer %d: %d of %d frames came", writer, n, frames)
		}
	}
}
