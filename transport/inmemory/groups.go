package inmemory

// groups holds the messages of a queue that wait for others of their group. For each
// group with messages in the queue, one message is in front: it is ready, delayed because
// it was postponed, or in flight, and the others wait until it has left the queue. The
// queue's lock guards it.
type groups struct {
	byKey   map[string]*group
	waiting int
}

type group struct {
	front   *message
	waiting ring[*message]
	unswept int // messages in waiting that have left
}

// enter reports whether a ready message may be delivered. If not, it waits for the
// message in front of its group.
func (g *groups) enter(m *message) bool {
	members := g.byKey[m.group]
	switch {
	case members == nil:
		if g.byKey == nil {
			g.byKey = map[string]*group{}
		}
		g.byKey[m.group] = &group{front: m}
		return true
	case members.front == m:
		return true
	}
	m.state = waiting
	members.waiting.pushBack(m)
	g.waiting++
	return false
}

// leave is called when m has left the queue. It returns the new front message of its
// group, or nil.
func (g *groups) leave(m *message) *message {
	members := g.byKey[m.group]
	if members == nil || members.front != m {
		return nil
	}
	for members.waiting.len() > 0 {
		next := members.waiting.popFront()
		if next.state != waiting {
			members.unswept--
			continue
		}
		members.front = next
		g.waiting--
		return next
	}
	delete(g.byKey, m.group)
	return nil
}

// sweep is called when a message that waited has another state. Its place stays until half
// of the places are free, so that each removal costs O(1).
func (g *groups) sweep(m *message) {
	g.waiting--
	members := g.byKey[m.group]
	members.unswept++
	if 2*members.unswept >= members.waiting.len() {
		members.waiting.keep(func(m *message) bool { return m.state == waiting })
		members.unswept = 0
	}
}
