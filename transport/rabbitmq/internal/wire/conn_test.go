package wire

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

// recorder records each write.
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

func TestConn_CorkedWritesTogether(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", maxBuffered+1)
	half := strings.Repeat("h", maxBuffered/2+1)
	for name, c := range map[string]struct {
		act  func(c *Conn)
		want []string
	}{
		"nobody holds it": {func(c *Conn) { mustWrite(t, c, "a", "b") }, []string{"a", "b"}},
		"held":            {func(c *Conn) { c.Cork(); mustWrite(t, c, "a", "b"); c.Uncork(); mustWrite(t, c, "c") }, []string{"ab", "c"}},
		"held by two": {func(c *Conn) {
			c.Cork()
			c.Cork()
			mustWrite(t, c, "a")
			c.Uncork()
			mustWrite(t, c, "b", "c")
			c.Uncork()
		}, []string{"a", "bc"}},
		"nothing to write": {func(c *Conn) { c.Cork(); c.Uncork() }, nil},
		"too much at once": {func(c *Conn) { c.Cork(); mustWrite(t, c, "a", large, "b"); c.Uncork() }, []string{"a", large, "b"}},
		"too much in all":  {func(c *Conn) { c.Cork(); mustWrite(t, c, half, half); c.Uncork() }, []string{half, half}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			c.act(NewConn(r))
			if strings.Join(r.writes, "|") != strings.Join(c.want, "|") {
				t.Errorf("there are %d writes, %.40q, want %.40q", len(r.writes), r.writes, c.want)
			}
		})
	}
}

// It is closed, as no other caller would be told of the error.
func TestConn_FailsOnUncork(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	c := NewConn(r)
	c.Cork()
	mustWrite(t, c, "a")
	r.err = errors.New("broken pipe")
	c.Uncork()
	if !r.closed {
		t.Error("it is open")
	}
}

// It loses nothing and keeps each caller's order, also while another caller holds it.
func TestConn_ConcurrentUse(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := NewConn(ours)
	const writers, frames = 8, 1000
	go func() {
		var wg sync.WaitGroup
		for writer := range writers {
			wg.Go(func() {
				for first := 0; first < frames; first += 10 {
					c.Cork()
					for i := first; i < first+10; i++ {
						_, _ = c.Write([]byte{byte(writer), byte(i >> 8), byte(i)})
					}
					c.Uncork()
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

// input is a connection from which something can be read.
type input struct {
	net.Conn
	io.Reader
	closed bool
}

func (i *input) Read(p []byte) (int, error) { return i.Reader.Read(p) }

func (i *input) Close() error { i.closed = true; return nil }

// It closes itself, and tells why the broker ended it.
func TestConn_FailsToRead(t *testing.T) {
	t.Parallel()
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	for name, c := range map[string]struct {
		from     io.Reader
		want     string
		err      error
		speaks   bool
		hasAlert bool
	}{
		"the end":            {strings.NewReader(aFrame(frameMethod, "start")), aFrame(frameMethod, "start"), nil, false, false},
		"another protocol":   {strings.NewReader("\x15\x03\x01"), "\x15\x03\x01", nil, true, false},
		"an alert":           {iotest.ErrReader(alert), "", alert, false, true},
		"a lost connection":  {iotest.ErrReader(net.ErrClosed), "", net.ErrClosed, false, false},
		"an alert after all": {io.MultiReader(strings.NewReader(aFrame(frameMethod, "start")), iotest.ErrReader(alert)), aFrame(frameMethod, "start"), alert, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := &input{Reader: c.from}
			conn := NewConn(in)
			got, err := io.ReadAll(conn)
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("it reads %q, %v, want %q, %v", got, err, c.want, c.err)
			}
			if !in.closed {
				t.Error("it is open")
			}
			if conn.PeerSpeaksTLS() != c.speaks {
				t.Errorf("PeerSpeaksTLS = %v", conn.PeerSpeaksTLS())
			}
			if (conn.Alert() != nil) != c.hasAlert {
				t.Errorf("Alert = %v", conn.Alert())
			}
		})
	}
}
