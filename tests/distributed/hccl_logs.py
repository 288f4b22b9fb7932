"""Lines that CANN wrote on other people's machines, verbatim, and where they were published."""

# ruff: noqa: E501

from __future__ import annotations

SOURCES = {
    "peer never answered": "hiascend.com, CANN community 8.5.0.alpha002, HCCL user guide, "
    "hcclug_000050 (EI0006)",
    "port of the network card is taken": "github.com/vllm-project/vllm-ascend/issues/1955",
    "server missed ranks": "hiascend.com, CANN commercial 8.5.0, HCCL user guide, hcclug_000036 "
    "(EI0015)",
    "agent missed ranks": "hiascend.com, CANN commercial 8.5.0, HCCL user guide, hcclug_000036 "
    "(EI0015)",
    "TLS differs": "hiascend.com, CANN commercial 8.0.RC3, HCCL user guide, hcclug_000055",
    "heartbeat lost": "hiascend.com, CANN community 8.5.0.alpha002, HCCL user guide, hcclug_000055",
    "an earlier job holds the device": "github.com/hiyouga/LlamaFactory/issues/3839",
    "a rank was late": "github.com/hiyouga/LlamaFactory/issues/5071",
}

LOGS = {
    "peer never answered": """\
[ERROR] HCCL(3977573,all_reduce_test):2025-11-22-17:37:04.447.996 [hccl_socket_manager.cc:816] [3977663][Wait][LinkEstablish]wait socket establish timeout, role[0] rank[0] timeout[120 s]
[ERROR] HCCL(3977573,all_reduce_test):2025-11-22-17:37:04.448.799 [hccl_socket_manager.cc:880] [3977663][Wait][LinksEstablishCompleted] is failed. ret[9].
""",
    "port of the network card is taken": """\
[ERROR] HCCL(2717288,python3):2025-07-23-03:47:57.070.463 [hccl_socket.cc:100] [2717288][HcclSocket][Listen] socket type[1], listen on ip[192.168.20.160] and specific port[16666] fail. Please check the port status and whether the port is been using by other process.
[ERROR] HCCL(2717288,python3):2025-07-23-03:47:57.070.466 [hccl_socket_manager.cc:54] [2717288][ServerInit]call trace: hcclRet -> 19
[ERROR] HCCL(2717288,python3):2025-07-23-03:49:57.177.194 [hccl_socket_manager.cc:778] [2734049][Wait][LinkEstablish]wait socket establish timeout, role[1] rank[12] timeout[120]
""",
    "server missed ranks": """\
[ERROR] HCCL(1041081,all_reduce_test):2000-03-15-01:20:01.624.966 [topoinfo_exchange_server.cc:314] [1041362][InitGroupStage][RanktableDetect]topo exchange server get socket timeout! timeout[120 s]
[ERROR] HCCL(1041081,all_reduce_test):2000-03-15-01:20:01.625.103 [topoinfo_exchange_server.cc:501] [1041362][InitGroupStage][DisplayConnectionedRank]total connected num is [4],line num is [1]
""",
    "agent missed ranks": """\
[ERROR] HCCL(1041085,all_reduce_test):2000-03-15-01:20:01.630.122 [topoinfo_exchange_base.cc:145] [1041085][InitGroupStage][RanktableDetect] TopoDetect ERROR occur !!! fault_type[1], fault_info["Failed to connect agent[1,3,5,7,]"]
[ERROR] HCCL(1041085,all_reduce_test):2000-03-15-01:20:01.630.557 [topoinfo_exchange_agent.cc:552] [1041085][InitGroupStage][RanktableDetect]rank num[8]is different with rank list size[4] in total topo rank info.
""",
    "TLS differs": """\
[EVENT] HCCP(23457,all_reduce_test):2023-10-16-08:39:56.291.195 [ra_host.c:1672]tid:23468,ra_socket_white_list_add(1672) : Input parameters: phy_id[0], local_ip[192.168.100.101], num[1]
[ERROR] HCCL(23457,all_reduce_test):2023-10-16-08:41:56.291.748 [comm_base.cc:967][23468] _________________________LINK_ERROR_INFO___________________________
[ERROR] HCCL(23457,all_reduce_test):2023-10-16-08:41:56.291.771 [comm_base.cc:968][23468] | comm error, device[0] num[1]
""",
    "heartbeat lost": """\
[ERROR]HCCL(835695,all_reduce_test):2025-10-23-17:28:06.049.385[task_exception_handler.cc:610][835695]Cluster Exception Location[IP/ID]:[127.10.0.1/1], Arrival Time:[Thu Oct 23 17:25:58 2025], Discoverer:[127.10.0.1/2], ExceptionType:[Heartbeat Lost Occurred], Possible Reason:1. Process has exited, 2. Network Disconnected
""",
    "an earlier job holds the device": """\
EJ0001: 2024-05-21-11:57:54.167.645 Failed to initialize the HCCP process. Reason: Maybe the last training process is running.
        Solution: Wait for 10s after killing the last training process and try again.
""",
    "a rank was late": """\
EI0006: 2024-08-05-18:15:21.270.506 Getting socket times out. Reason: Remote Rank did not send the data in time. Please check the reason for the rank being stuck
""",
}  # fmt: skip

CAUSES = {
    "peer never answered": "another device did not answer",
    "port of the network card is taken": "the port of the device's network card is taken",
    "server missed ranks": "some ranks never came to the group",
    "agent missed ranks": "ranks 1, 3, 5, 7 never came to the group",
    "TLS differs": "two devices could not be connected",
    "heartbeat lost": "a rank fell silent",
    "an earlier job holds the device": "an earlier job still holds the device",
    "a rank was late": "another rank did not send in time",
}
