package amqp10

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"
)

// raw is a client that sends frames as a test says.
type raw struct {
	t *testing.T
	net.Conn
	frames *frameReader
}

func (r *raw) open(o *Open) {
	r.t.Helper()
	if err := r.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	r.frames = newFrameReader(r.Conn, 1<<16)
	r.write(headerAMQP[:])
	r.send(0, o)
	if h, err := r.frames.protocolHeader(); err != nil || h != headerAMQP {
		r.t.Fatalf("header %q, %v", h, err)
	}
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) send(channel uint16, p Performative) {
	r.t.Helper()
	b, err := appendFrame(nil, frameAMQP, channel, p, 1<<16)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(b)
}

// expect reads frames until one of the type of p, which it returns.
func (r *raw) expect(p Performative) Performative {
	r.t.Helper()
	for {
		f, err := r.frames.next()
		if err != nil {
			r.t.Fatalf("%T: %v", p, err)
		}
		if len(f.body) == 0 {
			continue
		}
		got, err := DecodePerformative(f.body)
		if err != nil {
			r.t.Fatal(err)
		}
		if fmt.Sprintf("%T", got) == fmt.Sprintf("%T", p) {
			return got
		}
	}
}

// dialRaw opens a connection, a session on channel 0 and a link of each direction: handle 0 sends
// and handle 1 receives.
func dialRaw(t *testing.T, cfg Config, n *node) *raw {
	t.Helper()
	nc, _, _ := serve(t, cfg, n)
	r := &raw{t: t, Conn: nc}
	r.open(&Open{MaxFrameSize: 512, ChannelMax: 100})
	r.expect(&Open{})
	r.send(0, &Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10})
	r.expect(&Begin{})
	r.send(0, &Attach{Name: "s", Handle: 0, Role: RoleSender, Target: &Target{Address: "q"}, InitialDeliveryCount: new(uint32(5))})
	r.expect(&Attach{})
	r.send(0, &Attach{Name: "r", Handle: 1, Role: RoleReceiver, Source: &Source{Address: "q"}})
	r.expect(&Attach{})
	return r
}

func TestConn_OtherProtocolGetsTheHeader(t *testing.T) {
	t.Parallel()
	nc, _, ended := serve(t, Config{}, newNode())
	fmt.Fprint(nc, "GET / HTTP/1.1\r\n\r\n")
	var got [8]byte
	if _, err := nc.Read(got[:]); err != nil || got != headerAMQP {
		t.Errorf("answer %q, %v", got, err)
	}
	if err := <-ended; err == nil {
		t.Error("the connection ended without an error")
	}
}

func TestConn_SendsHeartbeatsAndEndsSilentClients(t *testing.T) {
	t.Parallel()
	nc, _, ended := serve(t, Config{IdleTimeout: 2 * time.Second}, newNode())
	client := &raw{t: t, Conn: nc}
	client.open(&Open{MaxFrameSize: 1000, IdleTimeout: 2 * time.Millisecond})
	client.expect(&Open{}) // without a frame of the client's from now on
	beats := 0
	for {
		f, err := client.frames.next()
		if err != nil {
			t.Fatal(err)
		}
		if len(f.body) == 0 {
			beats++
			continue
		}
		p, err := DecodePerformative(f.body)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := p.(*Close); !ok || c.Error == nil || c.Error.Condition != ErrResourceLimitExceeded {
			t.Errorf("received %#v", p)
		}
		break
	}
	if beats < 2 {
		t.Errorf("%d heartbeats", beats)
	}
	nc.Close()
	if err := <-ended; err == nil {
		t.Error("the connection ended without an error")
	}
}

func TestTransfer_TooLargeDetaches(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.attach = func(l *Link) bool {
		if l.Incoming() {
			l.AcceptIncoming(&inlet{n, l}, Reply{MaxMessageSize: 1000, Credit: 10})
		}
		return l.Incoming()
	}
	r := dialRaw(t, Config{}, n)
	for range 2 {
		r.send(0, &Transfer{Handle: 0, DeliveryID: new(uint32(0)), More: true, Payload: make([]byte, 501)})
	}
	if d := r.expect(&Detach{}).(*Detach); d.Error == nil || d.Error.Condition != ErrMessageSizeExceeded {
		t.Errorf("answer %#v", d)
	}
	n.await(t, "the end of the link", func() bool { return n.closed == 1 })
	if len(n.incoming) > 0 {
		t.Error("the message was taken")
	}
}

// TestConn_HostileFrames sends frames that break the protocol. The condition is that of the
// close, the end or the detach by which the server answers.
func TestConn_HostileFrames(t *testing.T) {
	t.Parallel()
	one := func(p Performative) func(*raw) { return func(r *raw) { r.send(0, p) } }
	id := new(uint32(0))
	for name, tt := range map[string]struct {
		send   func(*raw)
		answer Performative
		want   Symbol
	}{
		"frame too large":        {func(r *raw) { r.write([]byte{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0}) }, &Close{}, ErrFraming},
		"frame too small":        {func(r *raw) { r.write([]byte{0, 0, 0, 7, 2, 0, 0, 0}) }, &Close{}, ErrFraming},
		"offset beyond the end":  {func(r *raw) { r.write([]byte{0, 0, 0, 8, 200, 0, 0, 0}) }, &Close{}, ErrFraming},
		"unknown type":           {func(r *raw) { r.write([]byte{0, 0, 0, 8, 2, 9, 0, 0}) }, &Close{}, ErrFraming},
		"garbage":                {func(r *raw) { r.write([]byte{0, 0, 0, 10, 2, 0, 0, 0, 0xff, 0xff}) }, &Close{}, ErrDecode},
		"SASL again":             {func(r *raw) { r.write([]byte{0, 0, 0, 9, 2, 1, 0, 0, 0}) }, &Close{}, ErrFraming},
		"second open":            {one(&Open{}), &Close{}, ErrNotAllowed},
		"second begin":           {one(&Begin{}), &Close{}, ErrNotAllowed},
		"begin that answers":     {func(r *raw) { r.send(7, &Begin{RemoteChannel: new(uint16(0))}) }, &Close{}, ErrNotAllowed},
		"channel too high":       {func(r *raw) { r.send(60000, &Begin{}) }, &Close{}, ErrFraming},
		"no session":             {func(r *raw) { r.send(7, &Flow{}) }, &Close{}, ErrNotFound},
		"handle in use":          {one(&Attach{Name: "x", Handle: 1}), &End{}, ErrHandleInUse},
		"handle too high":        {one(&Attach{Name: "x", Handle: 1 << 30}), &End{}, ErrResourceLimitExceeded},
		"flow without a link":    {one(&Flow{Handle: new(uint32(9))}), &End{}, ErrUnattachedHandle},
		"detach without a link":  {one(&Detach{Handle: 9}), &End{}, ErrUnattachedHandle},
		"transfer to nowhere":    {one(&Transfer{Handle: 9}), &End{}, ErrUnattachedHandle},
		"transfer by a receiver": {one(&Transfer{Handle: 1, DeliveryID: id}), &End{}, ErrNotAllowed},
		"transfer without an id": {one(&Transfer{Handle: 0}), &Detach{}, ErrInvalidField},
		"transfer within another": {func(r *raw) {
			for i := range uint32(2) {
				r.send(0, &Transfer{Handle: 0, DeliveryID: &i, More: true})
			}
		}, &Detach{}, ErrInvalidField},
		"transfer without credit": {func(r *raw) {
			for i := range uint32(11) {
				r.send(0, &Transfer{Handle: 0, DeliveryID: &i})
			}
		}, &Detach{}, ErrTransferLimitExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode()
			n.attach = func(l *Link) bool {
				if l.Incoming() {
					l.AcceptIncoming(&inlet{n, l}, Reply{Credit: 10})
					l.session.conn.mu.Lock()
					l.window = 0 // there will be no more
					l.session.conn.mu.Unlock()
				}
				return l.Incoming()
			}
			r := dialRaw(t, Config{}, n)
			tt.send(r)
			var got *Error
			switch p := r.expect(tt.answer).(type) {
			case *Close:
				got = p.Error
			case *End:
				got = p.Error
			case *Detach:
				got = p.Error
			}
			if got == nil || got.Condition != tt.want {
				t.Errorf("answer %v in place of %s", got, tt.want)
			}
		})
	}
}

// TestReceive_FlowOfTheClientMayBeLate checks the credit and the window that remain when the
// client writes its flow before it has read all transfers.
func TestReceive_FlowOfTheClientMayBeLate(t *testing.T) {
	t.Parallel()
	n := newNode()
	for i := range 100 {
		n.queue = append(n.queue, []byte{byte(i)})
	}
	r := dialRaw(t, Config{}, n)
	ids := func(want ...uint32) {
		t.Helper()
		for _, id := range want {
			if got := r.expect(&Transfer{}).(*Transfer); *got.DeliveryID != id {
				t.Fatalf("delivery %d in place of %d", *got.DeliveryID, id)
			}
		}
	}
	flow := func(f Flow) {
		t.Helper()
		f.NextIncomingID, f.Handle = cmp.Or(f.NextIncomingID, new(uint32)), new(uint32(1))
		r.send(0, &f)
	}
	// quiet checks that no transfer comes before the answer to another frame.
	quiet := func() {
		t.Helper()
		r.send(0, &Attach{Name: "barrier", Handle: 2, Role: RoleReceiver, Source: &Source{Address: "q"}})
		for {
			f, err := r.frames.next()
			if err != nil {
				t.Fatal(err)
			}
			switch p, err := DecodePerformative(f.body); p := p.(type) {
			case *Transfer:
				t.Fatalf("delivery %d without credit or window", *p.DeliveryID)
			case *Attach:
				r.send(0, &Detach{Handle: 2, Closed: true})
				r.expect(&Detach{})
				return
			default:
				t.Fatal(p, err)
			}
		}
	}
	flow(Flow{IncomingWindow: 100, DeliveryCount: new(uint32), LinkCredit: new(uint32(3))})
	ids(0, 1, 2)
	quiet()
	flow(Flow{IncomingWindow: 100, DeliveryCount: new(uint32), LinkCredit: new(uint32(5))}) // for the first five
	ids(3, 4)
	quiet()
	flow(Flow{IncomingWindow: 6, DeliveryCount: new(uint32(5)), LinkCredit: new(uint32(50))}) // for the first six frames
	ids(5)
	quiet()
	flow(Flow{NextIncomingID: new(uint32(6)), IncomingWindow: math.MaxUint32, DeliveryCount: new(uint32(6)), LinkCredit: new(uint32(1))})
	ids(6)
	n.mu.Lock()
	n.queue = nil
	n.mu.Unlock()
	flow(Flow{NextIncomingID: new(uint32(7)), IncomingWindow: 100, DeliveryCount: new(uint32(7)), LinkCredit: new(uint32(9)), Drain: true})
	if f := r.expect(&Flow{}).(*Flow); !f.Drain || *f.DeliveryCount != 16 || *f.LinkCredit != 0 {
		t.Errorf("the drained link has the flow %#v", f)
	}
}

func TestDisposition_SettlesADeliveryOnce(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.queue = [][]byte{nil, nil, nil}
	r := dialRaw(t, Config{}, n)
	r.send(0, &Flow{NextIncomingID: new(uint32), IncomingWindow: 100, Handle: new(uint32(1)), DeliveryCount: new(uint32), LinkCredit: new(uint32(3))})
	for range 3 {
		r.expect(&Transfer{})
	}
	all := &Disposition{Role: RoleReceiver, Last: new(uint32(math.MaxUint32)), Settled: true, State: Accepted{}}
	r.send(0, &Disposition{Role: RoleSender, Last: all.Last, Settled: true, State: Accepted{}}) // of another direction
	r.send(0, &Disposition{Role: RoleReceiver, First: 1, Settled: false, State: Released{}})
	if d := r.expect(&Disposition{}).(*Disposition); d.First != 1 || !d.Settled || d.Role != RoleSender || d.State != (Released{}) {
		t.Errorf("reply %#v", d)
	}
	r.send(0, all)
	r.send(0, all)
	r.send(0, &Detach{Handle: 1, Closed: true})
	r.expect(&Detach{})
	var refs []any
	for _, s := range n.settled {
		refs = append(refs, s.Ref)
	}
	if !slices.Equal(refs, []any{uint64(2), uint64(1), uint64(3)}) {
		t.Errorf("settled %v", refs)
	}
}

// The connection may end between the reading of a frame and its handling, for instance because
// a write failed. A link that began then would have no end.
func TestAttach_AfterTheEndIsIgnored(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Conn, *session){
		"of the connection": func(c *Conn, _ *session) { c.end(io.ErrClosedPipe) },
		"of the session":    func(_ *Conn, s *session) { s.fail(Errorf(ErrInternal, "no more")) },
	} {
		client, server := net.Pipe()
		n := newNode()
		c := NewConn(server, Config{}, n)
		if violation := c.begin(0, &Begin{IncomingWindow: 100}); violation != nil {
			t.Fatal(violation)
		}
		s := c.sessions[0]
		end(c, s)
		s.attach(&Attach{Name: "r", Handle: 1, Role: RoleReceiver, Source: &Source{Address: "q"}})
		if len(n.links) > 0 {
			t.Errorf("a link began after the end %s", name)
		}
		c.end(nil)
		client.Close()
		server.Close()
		c.pumps.Wait()
	}
}

// FuzzConn sends frames to a connection with a session and two links, and closes it.
func FuzzConn(f *testing.F) {
	frames := func(all ...Performative) []byte {
		var b []byte
		for _, p := range all {
			var err error
			if b, err = appendFrame(b, frameAMQP, 0, p, 1<<16); err != nil {
				f.Fatal(err)
			}
		}
		return b
	}
	opening := append(headerAMQP[:len(headerAMQP):len(headerAMQP)], frames(
		&Open{MaxFrameSize: 512},
		&Begin{IncomingWindow: 100, OutgoingWindow: 100},
		&Attach{Name: "s", Handle: 0, Role: RoleSender, Target: &Target{Address: "q"}},
		&Attach{Name: "r", Handle: 1, Role: RoleReceiver, Source: &Source{Address: "q"}},
	)...)
	id := uint32(0)
	transfer := &Transfer{Handle: 0, DeliveryID: &id, Payload: []byte("body")}
	flow := &Flow{NextIncomingID: &id, IncomingWindow: 10, Handle: new(uint32(1)), DeliveryCount: &id, LinkCredit: new(uint32(10)), Drain: true, Echo: true}
	f.Add(frames(transfer, flow, &Disposition{Role: RoleReceiver, Last: new(uint32(5)), State: Accepted{}}, &Detach{Handle: 1, Closed: true}, &End{}, &Close{}))
	f.Add(frames(flow, transfer, transfer, &End{}, &Begin{}, &Attach{Name: "x", Role: RoleReceiver}))
	for _, p := range performatives {
		f.Add(frames(p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		client, server := net.Pipe()
		c := NewConn(server, Config{MaxFrameSize: 1024, Window: 4}, newNode())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Serve() // any error will do
		}()
		go func() { _, _ = io.Copy(io.Discard, client) }()
		_, _ = client.Write(slices.Concat(opening, b)) // the server may have closed the connection
		client.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("the connection did not end")
		}
	})
}
