package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// missing returns an error for each object on which the transport's role lacks rights,
// with the statement that grants them. A right that cannot be checked counts as granted,
// so that no working configuration is refused.
func (t *Transport) missing(ctx context.Context, needed []dialect.Right) ([]error, error) {
	slices.SortStableFunc(needed, func(a, b dialect.Right) int { // groups them by object
		return strings.Compare(string(a.On)+a.Of.Quoted, string(b.On)+b.Of.Quoted)
	})
	needed = slices.Compact(needed)
	if len(needed) == 0 {
		return nil, nil
	}
	s := t.dialect.Missing(needed)
	var lacks []missingGrant
	s.Row = func(scan sqlexec.Scanner) error {
		var role, sequence string
		var n int
		if err := scan(&role, &n, &sequence); err != nil {
			return err
		}
		r := needed[n]
		object := t.dialect.Grantable(r)
		if r.On == dialect.OnSequence {
			object = "sequence " + sequence
		}
		lacks = append(lacks, missingGrant{role, r.Verb, object})
		return nil
	}
	err := t.read(ctx, s)
	if err != nil && (t.transient(err) || ctx.Err() != nil) {
		return nil, err
	}
	return withMissingGrants(lacks), nil
}

// missingGrant is a missing right, as in GRANT.
type missingGrant struct{ role, verb, object string }

// withMissingGrants returns an error for each object.
func withMissingGrants(lacks []missingGrant) (errs []error) {
	slices.SortStableFunc(lacks, func(a, b missingGrant) int { return strings.Compare(a.object, b.object) })
	for len(lacks) > 0 {
		first := lacks[0]
		var verbs []string
		for len(lacks) > 0 && lacks[0].object == first.object {
			if !slices.Contains(verbs, lacks[0].verb) { // the statement may have been repeated
				verbs = append(verbs, lacks[0].verb)
			}
			lacks = lacks[1:]
		}
		list := strings.Join(verbs, ", ")
		errs = append(errs, transport.Permanent(fmt.Errorf("the role %s lacks %s on %s; to fix: grant %s on %s to %s",
			first.role, list, first.object, list, first.object, first.role)))
	}
	return errs
}

// denied adds the missing rights among needed to the error of a refused statement.
func (t *Transport) denied(ctx context.Context, cause error, needed []dialect.Right) error {
	missing, err := t.missing(ctx, needed)
	if err != nil {
		return cause
	}
	return errors.Join(append([]error{cause}, missing...)...)
}

// checkRights checks the rights that every endpoint needs, in any mode and with any
// retries, to receive from its queues and to send to others, and the rights in needed.
func (t *Transport) checkRights(ctx context.Context, inputs, others []*queues.Queue, needed []dialect.Right) ([]error, error) {
	for _, q := range inputs {
		needed = append(needed, t.dialect.Receiving(q.Table)...)
	}
	for _, q := range others {
		needed = append(needed, t.dialect.Sending(q.Table, q.Kind() == queues.NServiceBus)...)
	}
	return t.missing(ctx, needed)
}
