package persistentvolume

// Records cases of the conformance corpora: reads worlds from $RECORD_WORLDS, a line of JSON each, in the format of
// tests/conformance, and writes them to $RECORD_CASES with what this controller makes of them. `cargo xtask record` builds it into
// a copy of upstream's package, whose own test framework it uses: the controller, its API server in memory, the mock plugin.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/util/goroutinemap"
)

const (
	// How often a call is recorded: equally good volumes are picked by the order of a Go map, and few runs pick the same by chance.
	calls = 12
	// In how many orders of syncing a world is settled.
	orders = 8
	// Rounds after which a world counts as one that never settles.
	roundsMax = 40
)

// A case, field by field: all of the world that was read, and of its end what is recorded.
type recCase map[string]json.RawMessage

// What became of a world: its case, or why there is none.
type recOutcome struct {
	recorded recCase
	skipped  string
}

func TestRecord(t *testing.T) {
	// Failures are what many a world is about.
	klog.SetLogger(logr.Discard())
	worlds, err := os.Open(os.Getenv("RECORD_WORLDS"))
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.Create(os.Getenv("RECORD_CASES"))
	if err != nil {
		t.Fatal(err)
	}
	writer := bufio.NewWriter(cases)
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	recorded, skipped := 0, map[string]int{}
	for outcome := range recAll(worlds) {
		if outcome.skipped != "" {
			skipped[outcome.skipped]++
			continue
		}
		if err := encoder.Encode(outcome.recorded); err != nil {
			t.Fatal(err)
		}
		recorded++
	}
	if err := errors.Join(writer.Flush(), cases.Close()); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "recorded %d, left out %v\n", recorded, skipped)
}

// recAll records worlds on all processors and answers what became of them, in their order.
func recAll(worlds io.Reader) func(yield func(recOutcome) bool) {
	pending := make(chan chan recOutcome, 8*runtime.GOMAXPROCS(0))
	go func() {
		defer close(pending)
		lines := bufio.NewScanner(worlds)
		lines.Buffer(nil, 1<<24)
		room := make(chan struct{}, runtime.GOMAXPROCS(0))
		for lines.Scan() {
			line, outcome := append([]byte(nil), lines.Bytes()...), make(chan recOutcome, 1)
			pending <- outcome
			room <- struct{}{}
			go func() {
				outcome <- recRecord(line)
				<-room
			}()
		}
		if err := lines.Err(); err != nil {
			panic(err)
		}
	}()
	return func(yield func(recOutcome) bool) {
		for outcome := range pending {
			if !yield(<-outcome) {
				return
			}
		}
	}
}

// recRecord records one world. Upstream's code may panic in a world that no API server would let be.
func recRecord(line []byte) (outcome recOutcome) {
	defer func() {
		if panicked := recover(); panicked != nil {
			outcome = recOutcome{skipped: fmt.Sprintf("panic: %v", panicked)}
		}
	}()
	ctx, world, recorded := context.Background(), &recIn{}, recCase{}
	if err := errors.Join(json.Unmarshal(line, world), json.Unmarshal(line, &recorded)); err != nil {
		return recOutcome{skipped: err.Error()}
	}
	if world.ThenSettle || len(world.Changed) > 0 && string(world.Changed) != "null" {
		return recOutcome{skipped: "then_settle and changed_before_operation are not recorded"}
	}
	var err error
	if world.Call == "settle" {
		err = recSettled(ctx, world, recorded)
	} else {
		err = recCalled(ctx, world, recorded)
	}
	if err != nil {
		return recOutcome{skipped: err.Error()}
	}
	return recOutcome{recorded: recorded}
}

// recCalled adds what becomes of the world by the call, where that is always the same.
func recCalled(ctx context.Context, world *recIn, recorded recCase) error {
	ends := map[string]bool{}
	for range calls {
		end, err := recCall(ctx, world)
		if err != nil {
			return err
		}
		ends[string(encoded(end))] = true
		for field, value := range end {
			recorded[field] = encoded(value)
		}
	}
	if len(ends) > 1 {
		return errors.New("depends on chance")
	}
	return nil
}

// recCall makes the call once and answers the fields of the end.
func recCall(ctx context.Context, world *recIn) (map[string]any, error) {
	w, err := newRecWorld(ctx, world)
	if err != nil {
		return nil, err
	}
	defer w.close()
	uncached := map[string]bool{}
	for _, name := range world.Uncached {
		uncached[name] = true
	}
	w.fill(uncached)
	failure := w.sync(ctx, world.Call)
	return map[string]any{
		"final":  w.state().clean(),
		"events": append([]string{}, w.rec.events...),
		"writes": w.writes,
		"fails":  failure != nil,
	}, nil
}

// recSettled adds the end of the world that is synced until nothing changes, where it is the same in every order.
func recSettled(ctx context.Context, world *recIn, recorded recCase) error {
	ends := map[string]bool{}
	for seed := range orders {
		end, err := recSettle(ctx, world, rand.New(rand.NewSource(int64(seed))))
		if err != nil {
			return err
		}
		ends[string(encoded(end))] = true
		recorded["final"] = encoded(end)
	}
	if len(ends) > 1 {
		return errors.New("depends on the order")
	}
	return nil
}

// recSettle syncs every object once in each round, from caches that are fresh, until a round writes nothing.
func recSettle(ctx context.Context, world *recIn, order *rand.Rand) (*recObjects, error) {
	w, err := newRecWorld(ctx, world)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for range roundsMax {
		before := atomic.LoadInt64(&w.changes)
		// No operation is held back by its last failure.
		w.ctrl.runningOperations = goroutinemap.NewGoRoutineMap(true)
		w.fill(nil)
		keys := w.keys()
		order.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for _, key := range keys {
			// What fails is tried again in the next round.
			_ = w.sync(ctx, key)
		}
		if atomic.LoadInt64(&w.changes) == before {
			end := w.state().clean()
			return &end, nil
		}
	}
	return nil, errors.New("does not settle")
}

func encoded(value any) json.RawMessage {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return encoded
}
