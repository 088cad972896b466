package amqp10

// negotiate reads the protocol headers, authenticates the client and opens the connection.
func (c *Conn) negotiate(frames *frameReader) error {
	h, err := frames.protocolHeader()
	if err != nil {
		return err
	}
	if h == headerSASL {
		if err := c.authenticate(frames); err != nil {
			return err
		}
		if h, err = frames.protocolHeader(); err != nil {
			return err
		}
	}
	c.sendBytes(headerAMQP[:])
	if h != headerAMQP {
		return Errorf(ErrNotImplemented, "the protocol header %q is not that of AMQP 1.0", h)
	}
	f, err := frames.next()
	if err != nil {
		return err
	}
	p, err := DecodePerformative(f.body)
	if err != nil {
		return Errorf(ErrDecode, "%v", err)
	}
	open, ok := p.(*Open)
	if !ok || f.kind != frameAMQP {
		return Errorf(ErrNotAllowed, "a %T came before the connection was open", p)
	}
	if open.MaxFrameSize < minMaxFrameSize {
		return Errorf(ErrInvalidField, "max-frame-size %d; the least is %d", open.MaxFrameSize, minMaxFrameSize)
	}
	reply := &Open{
		ContainerID:  c.cfg.ContainerID,
		MaxFrameSize: uint32(c.cfg.MaxFrameSize),
		ChannelMax:   c.cfg.ChannelMax,
	}
	if c.cfg.IdleTimeout > 0 {
		reply.IdleTimeout = c.cfg.IdleTimeout / 2
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = open
	c.frameMax = int(min(open.MaxFrameSize, uint32(c.cfg.MaxFrameSize)))
	c.sendLocked(0, reply)
	return nil
}

// authenticate answers the client's SASL header and mechanism.
func (c *Conn) authenticate(frames *frameReader) error {
	c.sendBytes(headerSASL[:])
	c.sendSASL(&SASLMechanisms{Mechanisms: []Symbol{"ANONYMOUS", "EXTERNAL", "PLAIN"}})
	f, err := frames.next()
	if err != nil {
		return err
	}
	p, err := DecodePerformative(f.body)
	if err != nil {
		return Errorf(ErrDecode, "%v", err)
	}
	init, ok := p.(*SASLInit)
	if !ok || f.kind != frameSASL {
		return Errorf(ErrNotAllowed, "a %T in place of sasl-init", p)
	}
	switch init.Mechanism {
	case "ANONYMOUS", "EXTERNAL", "PLAIN":
		if c.cfg.Authenticate(string(init.Mechanism), init.InitialResponse) {
			c.sendSASL(&SASLOutcome{})
			return nil
		}
	}
	c.sendSASL(&SASLOutcome{Code: 1})
	return Errorf(ErrUnauthorizedAccess, "the SASL mechanism %.20q or its response was refused", init.Mechanism)
}

func (c *Conn) sendBytes(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, b...)
	c.wakeLocked()
}

func (c *Conn) sendSASL(p Performative) {
	b, err := appendFrame(nil, frameSASL, 0, p, minMaxFrameSize)
	if err == nil { // these frames have a few symbols at most
		c.sendBytes(b)
	}
}
