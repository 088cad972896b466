package amqp10

import (
	"net"
	"sync"
	"time"
)

const (
	// pauseLinks is the number of unwritten bytes at which links stop sending.
	pauseLinks = 1 << 20

	// pauseReader is the number of unwritten bytes at which the connection stops reading
	// the peer's frames: a peer that does not read replies causes no more of them.
	pauseReader = 8 << 20

	// lastWait is how long the end of a connection waits for the client.
	lastWait = time.Second
)

// Config configures connections. The zero value is usable.
type Config struct {
	// ContainerID names the server. The default is "amqp10".
	ContainerID string

	// MaxFrameSize is the limit of the frames that the client may send, in bytes. The default is
	// 64 KiB.
	MaxFrameSize int

	// ChannelMax is the highest number of a session. The default is 4999.
	ChannelMax uint16

	// HandleMax is the highest handle of a link within a session. The default is 255.
	HandleMax uint32

	// Window is the most transfer frames of a session that a client may send before the
	// server has read the first. The default is 5000.
	Window uint32

	// IdleTimeout is how long a client may be silent. The server announces half of it.
	// The default is 4 minutes; a negative value means no limit.
	IdleTimeout time.Duration

	// HandshakeTimeout is how long a client may take to open its connection. The default
	// is a minute.
	HandshakeTimeout time.Duration

	// Authenticate checks a client's SASL mechanism, ANONYMOUS, EXTERNAL or PLAIN, and
	// its initial response. By default every client is accepted.
	Authenticate func(mechanism string, response []byte) bool
}

func (c Config) withDefaults() Config {
	if c.ContainerID == "" {
		c.ContainerID = "amqp10"
	}
	if c.MaxFrameSize == 0 {
		c.MaxFrameSize = 64 << 10
	}
	if c.ChannelMax == 0 {
		c.ChannelMax = 4999
	}
	if c.HandleMax == 0 {
		c.HandleMax = 255
	}
	if c.Window == 0 {
		c.Window = 5000
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 4 * time.Minute
	}
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = time.Minute
	}
	if c.Authenticate == nil {
		c.Authenticate = func(string, []byte) bool { return true }
	}
	return c
}

// Handler is the broker behind connections.
type Handler interface {
	// Attach is called when a client attaches a link. It, or a goroutine that it starts, calls
	// one of AcceptIncoming, AcceptOutgoing and Refuse of the link. The connection reads no
	// other frame until Attach returns.
	Attach(l *Link)
}

// Conn is a connection of a client. Its methods may be called concurrently.
type Conn struct {
	cfg     Config
	handler Handler
	net     net.Conn
	done    chan struct{} // is closed when the connection ends
	written chan struct{} // is closed when the writer has ended
	pumps   sync.WaitGroup

	mu        sync.Mutex
	readable  sync.Cond // the reader waits until out is short enough
	wake      chan struct{}
	out       []byte
	blocked   []*Link // wait until out is short enough
	closing   bool    // the last frame is in out
	ended     bool
	reason    error
	open      *Open // of the client
	frameMax  int   // limit of the client
	sessions  map[uint16]*session
	losesEnds bool // ends of sessions are not answered
}

// NewConn returns a connection on nc, and takes ownership of nc. The caller must call
// Serve.
func NewConn(nc net.Conn, cfg Config, handler Handler) *Conn {
	c := &Conn{
		cfg:      cfg.withDefaults(),
		handler:  handler,
		net:      nc,
		done:     make(chan struct{}),
		written:  make(chan struct{}),
		wake:     make(chan struct{}, 1),
		frameMax: minMaxFrameSize,
		sessions: map[uint16]*session{},
	}
	c.readable.L = &c.mu
	return c
}

// Done is closed when the connection ends.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Links returns the links that the client has attached.
func (c *Conn) Links() []*Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	var links []*Link
	for _, s := range c.sessions {
		for _, l := range s.links {
			links = append(links, l)
		}
	}
	return links
}

// wakeLocked wakes the writer.
func (c *Conn) wakeLocked() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// sendLocked appends a frame to those that wait to be written. After the last frame it
// does nothing.
func (c *Conn) sendLocked(channel uint16, p Performative) {
	if c.closing || c.ended {
		return
	}
	b, err := appendFrame(c.out, frameAMQP, channel, p, c.frameMax)
	c.out = b
	if err != nil {
		// Only the descriptions in an error have no size limit.
		c.out, _ = appendFrame(c.out, frameAMQP, 0, &Close{Error: Errorf(ErrInternal, "%.200v", err)}, c.frameMax)
		c.closing = true
	}
	c.wakeLocked()
}
