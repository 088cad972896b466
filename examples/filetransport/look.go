package filetransport

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
)

// The transport is no queues.Taker: to replace a message, one file is made and another one removed, and a kill between
// the two would leave both messages or none. A tool sends the new message, then receives and completes the old one.
var _ interface {
	queues.Browser
	queues.DepthReader
	queues.Lister
} = (*Transport)(nil)

// Browse implements queues.Browser. It reads names and files, and changes none (C30). Messages are in the order of
// their ids, which is no order of sending but never changes, so that a look finds its place again (C31, C32).
func (t *Transport) Browse(ctx context.Context, r queues.Request) (page queues.Page, err error) {
	if err := transport.PrepareBrowse(&r); err != nil {
		return page, fmt.Errorf("filetransport: browse %q: %w", r.Queue, err)
	}
	err = t.each(ctx, "browse", []string{r.Queue}, func(dir string) (err error) {
		page, err = browse(dir, r)
		return err
	})
	return page, err
}

func browse(dir string, r queues.Request) (page queues.Page, err error) {
	after, err := parseCursor(r)
	if err != nil {
		return page, err
	}
	found, err := list(dir)
	if err != nil {
		return page, err
	}
	ids := r.Keys
	if ids == nil {
		ids = slices.Sorted(maps.Keys(found))
		next, has := slices.BinarySearch(ids, after)
		if has {
			next++
		}
		ids = ids[next:]
	}
	size, last := 0, ""
	for _, id := range ids {
		if r.Keys == nil && (len(page.Messages) == r.Limit || size >= r.MaxBytes) {
			page.Next = cursor(last, r.Queue)
			break
		}
		m, content := read(dir, found, id)
		if content == nil {
			continue
		}
		if r.Keys != nil && size >= r.MaxBytes {
			return queues.Page{}, transport.ErrTooManyKeys
		}
		shown := show(m, content)
		if size, last = size+len(content), id; r.WithoutBody {
			size, shown.Body = size-len(shown.Body), nil
		}
		page.Messages = append(page.Messages, shown)
	}
	return page, nil
}

// show returns a message as its next delivery has it (C33), but for the count, which is that until now.
func show(m message, content []byte) queues.Message {
	shown := queues.Message{Incoming: decode(m, content), Key: m.id}
	shown.BodyBytes = len(shown.Body)
	if shown.DeliveryCount = m.count; !m.held() {
		shown.DeliveryCount--
	}
	if shown.State = m.stateAt(time.Now()); shown.State == queues.Delayed {
		shown.DueAt = m.at
	}
	return shown
}

// stateAt says whether a receiver could claim the message.
func (m message) stateAt(now time.Time) queues.State {
	switch {
	case !m.at.After(now):
		return queues.Ready
	case m.held():
		return queues.Locked
	default:
		return queues.Delayed
	}
}

// list returns the messages of a queue by their ids. A file that is renamed while a directory is read may be missing
// from the names. So the directory is read twice: it would take a rename in both to miss a message.
func list(dir string) (map[string]message, error) {
	found := map[string]message{}
	for range 2 {
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if m, ok := parseName(file.Name()); ok {
				found[m.id] = m
			}
		}
	}
	return found, nil
}

// read returns a message and its content, or nil if it has left or cannot be read. The name in the list may be outdated.
func read(dir string, found map[string]message, id string) (message, []byte) {
	for range 10 {
		m, ok := found[id]
		if !ok {
			return m, nil
		}
		content, err := os.ReadFile(filepath.Join(dir, m.name()))
		if !errors.Is(err, fs.ErrNotExist) {
			return m, content
		}
		if found, err = list(dir); err != nil {
			return m, nil
		}
	}
	return message{}, nil
}

// cursor returns the Next of a page that ends with a message (C32).
func cursor(id, queue string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(id + "_" + queue))
}

// parseCursor returns the id with which the earlier page ended. An id has no underscore.
func parseCursor(r queues.Request) (id string, err error) {
	if r.After == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(r.After)
	if id, _, _ = strings.Cut(string(text), "_"); err != nil || cursor(id, r.Queue) != r.After {
		return "", transport.Permanent(fmt.Errorf("Request.After is %.100q, which is no Next of a page of this queue; to fix: begin with an empty After", r.After))
	}
	return id, nil
}

// Depth implements queues.DepthReader. It counts names, which may change at the same time (C36).
func (t *Transport) Depth(ctx context.Context, queue string) (queues.Depth, error) {
	depth := queues.Depth{Receivers: -1}
	err := t.each(ctx, "depth of", []string{queue}, func(dir string) error {
		found, err := list(dir)
		now := time.Now()
		for _, m := range found {
			switch m.stateAt(now) {
			case queues.Ready:
				depth.Ready++
			case queues.Locked:
				depth.Locked++
			default:
				depth.Delayed++
			}
		}
		return err
	})
	if err != nil {
		return queues.Depth{}, err
	}
	return depth, nil
}

// ListQueues implements queues.Lister (C37).
func (t *Transport) ListQueues(ctx context.Context) ([]string, error) {
	err := t.life.Err(ctx)
	var files []os.DirEntry
	if err == nil {
		files, err = os.ReadDir(t.cfg.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("filetransport: list queues: %w", err)
	}
	var names []string
	for _, file := range files {
		escaped, isQueue := strings.CutSuffix(file.Name(), suffix)
		name, err := url.QueryUnescape(strings.ReplaceAll(escaped, "^", ""))
		if dir, refused := t.queueDir(name); isQueue && err == nil && refused == nil && filepath.Base(dir) == file.Name() && file.IsDir() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
