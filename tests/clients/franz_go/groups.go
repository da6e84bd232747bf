package main

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is a consumer in a group. Its client calls back from goroutines of its own.
type member struct {
	client    *kgo.Client
	mutex     sync.Mutex
	held      map[int32]bool
	assigns   int
	revoked   int
	cancel    context.CancelFunc
	isPolling sync.WaitGroup
}

// member joins; it polls by itself unless the scenario does.
func (w *world) member(group, topic string, isPolling bool, more ...kgo.Opt) *member {
	m := &member{held: map[int32]bool{}}
	lose := func(_ context.Context, _ *kgo.Client, rows map[string][]int32) {
		m.mutex.Lock()
		defer m.mutex.Unlock()
		for _, partition := range rows[topic] {
			delete(m.held, partition)
			m.revoked++
		}
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, rows map[string][]int32) {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			m.assigns++
			for _, partition := range rows[topic] {
				m.held[partition] = true
			}
		}),
		kgo.OnPartitionsRevoked(lose),
		kgo.OnPartitionsLost(lose),
	}
	m.client = w.client(append(options, more...)...)
	ctx, cancel := context.WithCancel(w.ctx)
	m.cancel = cancel
	if isPolling {
		m.isPolling.Add(1)
		go func() {
			defer m.isPolling.Done()
			for ctx.Err() == nil {
				m.client.PollFetches(ctx)
			}
		}()
	}
	return m
}

func (m *member) partitions() []int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := []int32{}
	for partition := range m.held {
		found = append(found, partition)
	}
	sort.Slice(found, func(i, j int) bool { return found[i] < found[j] })
	return found
}

func (m *member) counts() (assigns, revoked int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.assigns, m.revoked
}

func (m *member) close() {
	m.cancel()
	m.isPolling.Wait()
	m.client.Close()
}

func (w *world) commit(of string, commit func(*kgo.Client, map[string]map[int32]kgo.EpochOffset)) outcome {
	topic, group := w.topic(of, 1), w.name(of)
	w.fill(topic, 1, 20)
	first := w.member(group, topic, false)
	w.take(first.client, 20)
	commit(first.client, map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 10}}})
	first.close()
	second := w.member(group, topic, false)
	defer second.close()
	next := w.take(second.client, 1)[0].Offset
	return outcome{"committed": w.committed(group, topic), "next": next}
}

func commitSync(w *world) outcome {
	return w.commit("commit-sync", func(c *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) {
		c.CommitOffsetsSync(w.ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			check(err)
		})
	})
}

func commitAsync(w *world) outcome {
	return w.commit("commit-async", func(c *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) {
		answered := make(chan error, 1)
		c.CommitOffsets(w.ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			answered <- err
		})
		check(<-answered)
	})
}

func pattern(w *world) outcome {
	for _, last := range []string{"a", "b"} {
		w.fill(w.topic("pattern-"+last, 1), 1, 1)
	}
	m := w.member(w.name("pattern"), "^"+w.name("pattern-")+".*", false, kgo.ConsumeRegex())
	defer m.close()
	topics := []string{}
	for _, record := range w.take(m.client, 2) {
		topics = append(topics, record.Topic[len(w.name("")):])
	}
	sort.Strings(topics)
	return outcome{"topics": topics}
}

// two members with two partitions each.
func (w *world) pair(of string, first, second []kgo.Opt) (*member, *member) {
	topic, group := w.topic(of, 4), w.name(of)
	one := w.member(group, topic, true, first...)
	w.until("the first has all", func() bool { return len(one.partitions()) == 4 })
	two := w.member(group, topic, true, second...)
	w.until("each has two", func() bool {
		return len(one.partitions()) == 2 && len(two.partitions()) == 2
	})
	return one, two
}

func rebalance(w *world) outcome {
	one, two := w.pair("rebalance", nil, nil)
	defer one.close()
	together := []int{len(one.partitions()), len(two.partitions())}
	two.close()
	w.until("the other has all again", func() bool { return len(one.partitions()) == 4 })
	return outcome{"together": together, "alone": len(one.partitions())}
}

func staticMember(w *world) outcome {
	static := func(id string) []kgo.Opt { return []kgo.Opt{kgo.InstanceID(id)} }
	one, two := w.pair("static-member", static("one"), static("two"))
	defer one.close()
	before := two.partitions()
	assigns, _ := one.counts()
	two.close()
	again := w.member(w.name("static-member"), w.name("static-member"), true, static("two")...)
	defer again.close()
	w.until("it is back", func() bool { return len(again.partitions()) == 2 })
	after, _ := one.counts()
	same := before[0] == again.partitions()[0] && before[1] == again.partitions()[1]
	return outcome{"same_partitions": same, "others_rebalanced": after - assigns}
}

func cooperative(w *world) outcome {
	sticky := []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}
	one, two := w.pair("cooperative", sticky, sticky)
	defer one.close()
	defer two.close()
	_, revoked := one.counts()
	return outcome{"kept": len(one.partitions()), "revoked": revoked}
}

func transactionOffsets(w *world) outcome {
	topic, group := w.topic("transaction-offsets", 1), w.name("transaction-offsets")
	w.fill(topic, 1, 10)
	session := must(kgo.NewGroupTransactSession(
		kgo.SeedBrokers(w.bootstrap...),
		kgo.TransactionalID(w.name("transaction-offsets")),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	))
	defer session.Close()
	target := w.topic("transaction-offsets-copy", 1)
	turn := func(end kgo.TransactionEndTry) {
		check(session.Begin())
		for count := 0; count < 10; {
			fetches := session.PollFetches(w.ctx)
			check(fetches.Err())
			for _, record := range fetches.Records() {
				count++
				copied := &kgo.Record{Topic: target, Value: record.Value}
				check(session.ProduceSync(w.ctx, copied).FirstErr())
			}
		}
		must(session.End(w.ctx, end))
	}
	turn(kgo.TryAbort)
	afterAbort := w.committed(group, topic)
	turn(kgo.TryCommit)
	// A commit is answered before its markers are written.
	w.until("the markers", func() bool { return w.committed(group, topic) >= 0 })
	return outcome{"after_abort": afterAbort, "after_commit": w.committed(group, topic)}
}

func adminGroups(w *world) outcome {
	topic, group := w.topic("admin-groups", 1), w.name("admin-groups")
	w.fill(topic, 1, 1)
	m := w.member(group, topic, false)
	w.take(m.client, 1)
	check(m.client.CommitUncommittedOffsets(w.ctx))
	m.close()
	var described kadm.DescribedGroup
	w.until("the group is empty", func() bool {
		described = must(w.admin.DescribeGroups(w.ctx, group))[group]
		return described.State == "Empty"
	})
	_, isListed := must(w.admin.ListGroups(w.ctx))[group]
	must(w.admin.DeleteGroup(w.ctx, group))
	_, isLeft := must(w.admin.ListGroups(w.ctx))[group]
	return outcome{"state": described.State, "listed": isListed, "listed_after_delete": isLeft}
}
