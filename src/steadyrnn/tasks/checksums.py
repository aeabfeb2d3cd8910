"""Size and SHA-256 of every data file the tasks read, by its path inside the data folder."""

__all__ = ["CHECKSUMS"]

# One line per file: SHA-256 in hexadecimal, bytes, path.
_FILES = """
9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922  1215637 bibtex/bibtex-test.arff
8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174  2292961 bibtex/bibtex-train.arff
08fe20013c1e75dcf1888c185f5187c95e76495b8518ce289b4d3afce38d1232     5880 bibtex/bibtex.xml
8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6  1648877 mnist/t10k-images-idx3-ubyte.gz
f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6     4542 mnist/t10k-labels-idx1-ubyte.gz
440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609  9912422 mnist/train-images-idx3-ubyte.gz
3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c    28881 mnist/train-labels-idx1-ubyte.gz
dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0   449945 ptb/ptb.test.txt
fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf  5101618 ptb/ptb.train.txt
c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2   399782 ptb/ptb.valid.txt
d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0  1256449 wikitext-2/test.txt
9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f 10797148 wikitext-2/train.txt
f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8  1121681 wikitext-2/valid.txt
"""

# One line per file: SHA-256, bytes, name. The files are those of the archive's release of 2018, each in the folder of its data
# set; those of 2015 have other names and other bytes.
_UCR_FILES = """
7bc80100ddd719b03acf1b584dc3b7db8a05709e49aaebf4d1b4abe7cb4b2701   759919 Adiac_TEST
b15c09d9358b3ee424fe101c7a6345f03e274b1abe9f9d49e8ed5e7803285c20   758161 Adiac_TRAIN
6bc7a83f66c0651d95fefefb2560011d6a877b6ca4c113dda1c07aeaed4737e2   484229 ArrowHead_TEST
04bb9fd2827650d3ec2f384507f083fbd4c3748f919cbace3831f87e0aff06a7    99664 ArrowHead_TRAIN
17cd4d7c06d71d5a6685923e82c222e418746693a02b83e30d11a979a209461f   158655 Beef_TEST
a62197379ea58236e8b9dea739a821b309ab6782d1521d5e5758cadefe90b3fe   158643 Beef_TRAIN
dad1cc930595c570abe8f047c8a29758ef192f8b7306973f876e6db61abcf3c0   113860 BeetleFly_TEST
636d819c61536893bc079e3656adf59593be103b17903358b682131f2230e22e   114131 BeetleFly_TRAIN
9485e783f961cbc6343f7da504fd8f6f9502e9000fd379bc60c688ff5d637965  1283447 CBF_TEST
eb25c656d86a28328bca2a3c4bd0dcd54f27546b6a83f84a635cf581a55cead4    42816 CBF_TRAIN
07f25cedb9fd819a201e7de6abbdc444695b4b16ee70295010e401f18c38babd    88249 Coffee_TEST
a722ab8acd6c18b11b8fa835fbe523fc072e6ce4434b44d7919fa95152d377bf    88231 Coffee_TRAIN
b9920feabc357533fabcd6bb29ce274a8a45ecb62c347cc6d6adf619d700b5f0  1323109 CricketX_TEST
543808f2146934808d7c2cf3baf9080f562c1a3fa047853a1071d3c70c1be136  1320672 CricketX_TRAIN
8a4d88d68ffc10d49be1605906dd86ca8c1147c7beba83c74bd1844d7242a899   243818 DistalPhalanxOutlineCorrect_TEST
981002fc4e15fee89426a9d71ba1ce442a438cee04eb3d2f39b7ad1f77f68d44   527028 DistalPhalanxOutlineCorrect_TRAIN
d5258e0149d1a28e6ff35af5360b28e1fc2dcafcf6ece32a75bfcc8f6351c650   122709 DistalPhalanxTW_TEST
4659610981370594961dd17716f2161453c53cc574711ee7c41e95d7e5f146a7   351306 DistalPhalanxTW_TRAIN
c8ac02caf98be23c47c044fde026219301ceaf0b2f97bc107bd0cd96330b867c   106740 ECG200_TEST
bd08b37147ebf205231ad43e02c42dd5c14bc348f4ccc7614f85634c8916bf21   106739 ECG200_TRAIN
0192997dd1793880633bfb34ae3ad5129c09a8e0f210c469225451b92cdd8548  7083836 ECG5000_TEST
df86ac15d7e283e731db6be7865f5004b65bc639014cb8b9753c26e24a9092a1   786687 ECG5000_TRAIN
bb9706f13954be81bf9b47aa6e8634e94f11fdee93237e3c039d8822eef4439f  1368697 ECGFiveDays_TEST
e81cc7d1b974324b432ce50bc6e9dac88e3111ffd46dccd1df1e4863e82022c3    36470 ECGFiveDays_TRAIN
ae3cc831966b5b28684ca2563813bd550beb8648b3c3737d585b3eca79271d11  2503257 FaceAll_TEST
ac1957cc8aac3cfd7951a0d46e7ea1147fd3a23db3eeda2a30484764584a3242   828094 FaceAll_TRAIN
72716dfe414e3c33255337f747c5c3aa7d8ba3073c3c62a50732c0abbfe8898f   349538 FaceFour_TEST
fc607f610415432fef99fd19df6524758c1570b9cafd2c71d5afa06f9e922b02    95201 FaceFour_TRAIN
56c23d0505e7eb491f6933d63b635ca5536af6a2ff0fa06b0376ca9fb2fb87b5  3035325 FacesUCR_TEST
b240b761de5aca4bb295a2dd5e5be4cf1d932888937749a7417eef5396745a7a   296026 FacesUCR_TRAIN
97d2239bb9e6a7daa84b2e1417fd1202163877a71d3f8552f4a8b2d276b747fa  1402476 FiftyWords_TEST
1b47c2429c2c62501796f5439b8424685851c4cef755ab87cec24fbecb561544  1385313 FiftyWords_TRAIN
5537eb2f3050e1514f3221b5f4c9799b350fb229ea15eed9e78bbae855505ccf   251451 GunPoint_TEST
4d14e4f44a6230087cb4b4ed7844c8b0feb76f07a76108cc367d689e0de8f609    83332 GunPoint_TRAIN
34b906e17d0357984973b10910d554813427d20a78cdd6994bee3afb420039f5  5889415 InsectWingbeatSound_TEST
f89acf4a24fcda5b0ba621c8b6e046f678c788d931fbd09e9f2efbf3adc222f6   654433 InsectWingbeatSound_TRAIN
ab22aa53de4ef55f2e2bcbf0518565704aeec8d76f48ef1180903bf5814c47fc   273602 ItalyPowerDemand_TEST
fab46ef99232ada65773ed89b131954a91ec1da69803159cb1566f320dbaf22e    17832 ItalyPowerDemand_TRAIN
0303f4100f7b728a8782f1a1e97562a4e6b4ec4c24733ac126391630ddc27c3a   451618 Lightning2_TEST
3d83a87ed1f166b6b57fe4201e943499422bb29ca000299b901dd34f1545ac56   444061 Lightning2_TRAIN
49332724500215c86b4a856833cc0964db24ba9b5e2c452f45da7139c1681b98   257311 MiddlePhalanxOutlineCorrect_TEST
22dcf8b4938748e7237dba385073f9f148ecd9efa71c0e8cebf928acc64ac344   526171 MiddlePhalanxOutlineCorrect_TRAIN
"""


def _read_table(text: str) -> dict[str, tuple[int, str]]:
    return {name: (int(size), sha256) for sha256, size, name in map(str.split, text.strip().splitlines())}


def _ucr_path(name: str) -> str:
    return f"ucr/UCRArchive_2018/{name.rpartition('_')[0]}/{name}.tsv"


CHECKSUMS: dict[str, tuple[int, str]] = {
    **_read_table(_FILES),
    **{_ucr_path(name): sums for name, sums in _read_table(_UCR_FILES).items()},
}
"""Path to (bytes, SHA-256 in hexadecimal)."""
