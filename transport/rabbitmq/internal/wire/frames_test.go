package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/header"
)

// Frames as a broker writes them.
func aFrame(kind byte, payload string) string {
	b := binary.BigEndian.AppendUint32([]byte{kind, 0, 1}, uint32(len(payload)))
	return string(b) + payload + string([]byte{frameEnd})
}

// aHeader has a content type, a table of headers, and a delivery mode.
func aHeader(table string) string {
	b := []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0xb0, 0}
	b = append(b, "\x0atext/plain"...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(table)))
	return aFrame(frameHeader, string(b)+table+"\x02")
}

func entry1(key, field string) string { return string(shortString(key)) + field }

func withLength(kind byte, content string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content)))) + content
}

// deep is a value of tables, or arrays, within each other.
func deep(depth int) string {
	field := "t\x01"
	for i := range depth {
		if i%2 == 0 {
			field = withLength('F', entry1("a", field))
		} else {
			field = withLength('A', field)
		}
	}
	return field
}

// every is a table with a value of each type.
func every() string {
	var b strings.Builder
	for i, field := range []string{
		"V", "t\x01", "b\xff", "B\x01", "s\x00\x01", "u\x00\x01", "I\x00\x00\x00\x01", "i\x00\x00\x00\x01", "f\x00\x00\x00\x00",
		"D\x01\x00\x00\x00\x0c", "l\x00\x00\x00\x00\x00\x00\x00\x01", "d\x00\x00\x00\x00\x00\x00\x00\x00", "T\x00\x00\x00\x00\x00\x00\x00\x01",
		withLength('S', "text"), withLength('x', "\xff"), withLength('A', "VV"), withLength('F', entry1("a", "V")),
	} {
		b.WriteString(entry1(strconv.Itoa(i), field))
	}
	return b.String()
}

func numberedEntries(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(entry1(strconv.Itoa(i), "V"))
	}
	return b.String()
}

func TestCheckTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ table, want string }{
		"empty":               {"", ""},
		"every type":          {every(), ""},
		"32 levels":           {entry1("a", deep(maxDepth)), ""},
		"33 levels":           {entry1("a", deep(maxDepth+1)), tooDeep},
		"34 levels":           {entry1("a", deep(maxDepth+2)), tooDeep},
		"8,192 headers":       {numberedEntries(maxElements), ""},
		"8,193 headers":       {numberedEntries(maxElements + 1), tooMany},
		"8,192 in a table":    {entry1("a", withLength('F', numberedEntries(maxElements))), ""},
		"8,193 in a table":    {entry1("a", withLength('F', numberedEntries(maxElements+1))), tooMany},
		"8,192 in an array":   {entry1("a", withLength('A', strings.Repeat("V", maxElements))), ""},
		"8,193 in an array":   {entry1("a", withLength('A', strings.Repeat("V", maxElements+1))), tooMany},
		"of an unknown type":  {entry1("a", "?"), notAMQP},
		"in an array":         {entry1("a", withLength('A', "?")), notAMQP},
		"a key too short":     {"\x05a", notAMQP},
		"no value":            {"\x01a", notAMQP},
		"a number too short":  {entry1("a", "I\x00"), notAMQP},
		"a text too short":    {entry1("a", "S\x00\x00\x00\x09a"), notAMQP},
		"a length too short":  {entry1("a", "S\x00"), notAMQP},
		"a length of 2^32 -1": {entry1("a", "F\xff\xff\xff\xff"), notAMQP},
	} {
		if got := checkTable([]byte(c.table), 0); got != c.want {
			t.Errorf("%s: checkTable = %q, want %q", name, got, c.want)
		}
	}
}

// It reads the same however the input is cut into pieces: all frames unchanged, except
// those that the client library would refuse.
func TestFrameReader(t *testing.T) {
	t.Parallel()
	bad := aHeader(entry1("a", deep(200)) + entry1("b", withLength('S', "kept")))
	in := strings.Join([]string{
		aFrame(frameMethod, "deliver"), aHeader(every()), aFrame(frameBody, strings.Repeat("b", 10_000)),
		aFrame(frameMethod, "deliver"), bad, aFrame(frameBody, "body"), bad, aFrame(frameHeartbeat, ""), aFrame(frameMethod, "deliver"), aHeader(""),
		aFrame(frameBody, string([]byte{frameHeader, 0, 0, 0, 0, 0, 1})), // looks like a frame, and is none
	}, "")
	good := string(rewriteHeader([]byte(bad), DefaultFrameMax))
	want := strings.ReplaceAll(in, bad, good)
	if h, ok := parseHeader([]byte(good)); !ok || checkTable(h.table, 0) != "" || !strings.Contains(good, entry1("b", withLength('S', "kept"))) {
		t.Fatalf("the header was replaced by %q", good)
	}
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"all at once":    func(r io.Reader) io.Reader { return r },
		"byte by byte":   iotest.OneByteReader,
		"half of it":     iotest.HalfReader,
		"with the error": iotest.DataErrReader,
		"any sizes":      func(r io.Reader) io.Reader { return &pieces{r, rand.New(rand.NewPCG(1, 2))} },
	} {
		for _, size := range []int{1, 7, 4096, 1 << 20} {
			f, from := &frameReader{}, reader(strings.NewReader(in))
			var out bytes.Buffer
			_, err := io.CopyBuffer(struct{ io.Writer }{&out}, readerFunc(func(p []byte) (int, error) { return f.read(from, p) }), make([]byte, size))
			if err != nil || out.String() != want {
				t.Errorf("%s, into %d bytes: %d bytes came, %v, want %d", name, size, out.Len(), err, len(want))
			}
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// pieces returns fewer bytes than there are.
type pieces struct {
	io.Reader
	rand *rand.Rand
}

func (r *pieces) Read(p []byte) (int, error) { return r.Reader.Read(p[:1+r.rand.IntN(len(p))]) }

// Input that is not AMQP passes unchanged.
func TestFrameReader_Foreign(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"AMQP\x00\x00\x09\x01", "\x15\x03\x01\x00\x02\x02\x46", "H", aFrame(frameMethod, "start") + "garbage"} {
		f := &frameReader{}
		from := iotest.OneByteReader(strings.NewReader(in))
		out, err := io.ReadAll(readerFunc(func(p []byte) (int, error) { return f.read(from, p) }))
		if err != nil || string(out) != in {
			t.Errorf("%q came as %q, %v", in, out, err)
		}
	}
}

// FuzzRewriteHeader never panics and makes a frame that the client library decodes.
func FuzzRewriteHeader(f *testing.F) {
	for _, table := range []string{"", every(), entry1("a", deep(200)), entry1("a", withLength('F', entry1("b", "?"))), entry1("a", withLength('S', strings.Repeat("é", 100_000))), strings.Repeat(entry1(header.Deliveries, "V"), 9000)} {
		f.Add([]byte(table))
	}
	f.Fuzz(func(t *testing.T, table []byte) {
		frame := []byte(aHeader(string(table)))
		for _, limit := range []int{4096, DefaultFrameMax} {
			out := rewriteHeader(frame, limit)
			h, ok := parseHeader(out)
			if why := checkTable(h.table, 0); !ok || why != "" {
				t.Errorf("it cannot be decoded: %s", why)
			}
			if len(out) > limit || frameSize(out) != uint64(len(out)) || out[len(out)-1] != frameEnd {
				t.Errorf("it has %d bytes, says %d, and may have %d", len(out), frameSize(out), limit)
			}
		}
	})
}

func BenchmarkFrameReader(b *testing.B) {
	table := ""
	for i := range 12 {
		table += entry1("NServiceBus.Header"+strconv.Itoa(i), withLength('S', strings.Repeat("x", 30)))
	}
	in := []byte(aFrame(frameMethod, strings.Repeat("d", 60)) + aHeader(table) + aFrame(frameBody, strings.Repeat("b", 200)))
	f := &frameReader{}
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if f.scan(in) != len(in) {
			b.Fatal("it is not passed")
		}
	}
}
